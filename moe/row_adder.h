#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/host_rows.h"
#include "kernels/ops.h"

namespace ferry {

/// Of a fast combine: adds up the rows that one rank has of each token, in the order of experts, in fp32. Sized at start; one
/// thread at a time.
class RowAdder {
 public:
  /// Of up to `max_tokens` tokens, each of which has up to `rows_per_token` rows.
  RowAdder(Stream& stream, int64_t max_tokens, int64_t rows_per_token);

  /// out [num_tokens, hidden_dim] = sum over the rows r of a token of row_weights[r] * rows[r]. `row_token` [num_rows]: the
  /// token of each row. Throws Error{kInternal} if one has more rows than it can have.
  void add_up(std::span<const int32_t> row_token, std::span<const float> row_weights, ConstMatrixView rows, MatrixView out);

 private:
  Stream& stream_;
  int64_t rows_per_token_;
  std::vector<const std::byte*> slot_rows_;  // [max_tokens, rows_per_token]
  Mirror<float> slot_weights_;               // likewise
  std::vector<int32_t> num_slots_;           // [max_tokens]
};

}  // namespace ferry
