#include "runtime/host_logits.h"

#include <algorithm>

#include "kernels/ops.h"
#include "runtime/base/check.h"

namespace ferry {

HostLogits::HostLogits(Stream& stream, const Options& options)
    : stream_(&stream),
      vocab_size_effective_(options.vocab_size_effective),
      tokens_(stream, options.max_rows),
      copy_(options.dtype, stream.is_on_host() || !options.has_values ? 0 : options.max_rows, options.vocab_size) {
  FERRY_CHECK(vocab_size_effective_ >= 1 && vocab_size_effective_ <= options.vocab_size)
      << vocab_size_effective_ << " of " << options.vocab_size << " ids";
  wants_.reserve(static_cast<std::size_t>(options.max_rows));
  token_rows_.reserve(static_cast<std::size_t>(options.max_rows));
}

void HostLogits::set(ConstMatrixView logits, OutputHead* pending) {
  FERRY_CHECK_LE(logits.rows, tokens_.size());
  FERRY_CHECK_EQ(logits.cols, copy_.cols());
  logits_ = logits;
  pending_ = pending;
  wants_.assign(static_cast<std::size_t>(logits.rows), Want::kNothing);
}

void HostLogits::want(int64_t row, Want what) { wants_.at(static_cast<std::size_t>(row)) = what; }

void HostLogits::want_all(Want what) { std::ranges::fill(wants_, what); }

void HostLogits::fetch() {
  token_rows_.clear();
  for (std::size_t row = 0; row < wants_.size(); ++row) {
    if (wants_[row] == Want::kToken) token_rows_.push_back(static_cast<int32_t>(row));
  }
  if (!find_tokens()) {
    if (pending_ != nullptr) pending_->compute();
    pending_ = nullptr;
    ask_tokens();
    if (!stream_->is_on_host()) ask_values();
  }
  stream_->wait(stream_->submit());
}

/// Without logits, if they are still to be computed and no row's are wanted.
bool HostLogits::find_tokens() {
  if (pending_ == nullptr || std::ranges::find(wants_, Want::kValues) != wants_.end()) return false;
  return token_rows_.empty() || pending_->find_tokens(token_rows_, vocab_size_effective_, tokens_.device().host());
}

void HostLogits::ask_tokens() {
  if (token_rows_.empty()) return;
  argmax(*stream_, {.x = logits_.cols_from(0, vocab_size_effective_), .rows = token_rows_, .ids = tokens_.device()});
  tokens_.ask(0, num_rows());
}

/// A copy for each run of neighbours.
void HostLogits::ask_values() {
  for (auto first = wants_.begin(); first != wants_.end();) {
    const auto end = std::find_if(first, wants_.end(), [](Want want) { return want != Want::kValues; });
    const int64_t row = first - wants_.begin(), count = end - first;
    if (count > 0) copy_rows(*stream_, logits_.rows_from(row, count), copy_.view().rows_from(row, count));
    first = end == wants_.end() ? end : end + 1;
  }
}

TokenId HostLogits::token(int64_t row) const {
  FERRY_CHECK(wants_.at(static_cast<std::size_t>(row)) == Want::kToken) << "the token of row " << row << " was not asked for";
  return tokens_.host()[row];
}

ConstMatrixView HostLogits::values(int64_t row) const {
  FERRY_CHECK(wants_.at(static_cast<std::size_t>(row)) == Want::kValues) << "values of row " << row << " were not asked for";
  return host_values().rows_from(row, 1).cols_from(0, vocab_size_effective_);
}

std::span<const TokenId> HostLogits::all_tokens() {
  want_all(Want::kToken);
  fetch();
  return {tokens_.host(), static_cast<std::size_t>(num_rows())};
}

ConstMatrixView HostLogits::all_values() {
  want_all(Want::kValues);
  fetch();
  return host_values().rows_from(0, num_rows());
}

}  // namespace ferry
