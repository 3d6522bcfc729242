#include "moe/row_adder.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"

namespace ferry {

RowAdder::RowAdder(Stream& stream, int64_t max_tokens, int64_t rows_per_token)
    : stream_(stream),
      rows_per_token_(rows_per_token),
      slot_rows_(static_cast<std::size_t>(max_tokens * rows_per_token)),
      slot_weights_(stream, max_tokens * rows_per_token),
      num_slots_(static_cast<std::size_t>(max_tokens)) {}

void RowAdder::add_up(std::span<const int32_t> row_token, std::span<const float> row_weights, ConstMatrixView rows,
                      MatrixView out) {
  const auto num_tokens = static_cast<std::size_t>(out.rows), width = static_cast<std::size_t>(rows_per_token_);
  const std::span<const std::byte*> slot_rows = std::span(slot_rows_).first(num_tokens * width);
  std::ranges::fill(slot_rows, nullptr);
  std::fill_n(num_slots_.begin(), num_tokens, 0);
  for (std::size_t r = 0; r < row_token.size(); ++r) {
    const auto token = static_cast<std::size_t>(row_token[r]);
    if (num_slots_[token] == rows_per_token_) {
      throw Error(ErrorCode::kInternal, "an expert request has more than " + std::to_string(rows_per_token_) +
                                            " rows of token " + std::to_string(token));
    }
    const std::size_t slot = token * width + static_cast<std::size_t>(num_slots_[token]++);
    slot_rows[slot] = rows.row_address(static_cast<int64_t>(r));
    slot_weights_.host()[slot] = row_weights[r];
  }
  slot_weights_.send(0, std::ssize(slot_rows));
  combine(stream_, {.slot_rows = slot_rows, .slot_weights = slot_weights_.device(), .num_slots = rows_per_token_, .out = out});
}

}  // namespace ferry
