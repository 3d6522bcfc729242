#include "runtime/schedule/chunk_control.h"

#include <algorithm>
#include <cmath>

namespace ferry {
namespace {

constexpr double kBaseWeight = 1.0 / 16;  // of a measurement in the average of steps without rows of prompts
constexpr double kSpreadWeight = 1.0 / 16;
constexpr double kDecay = 7.0 / 8;        // of what was measured before, with each step that has rows
constexpr double kMostTimesExpected = 3;  // a measurement counts at most as so many times what was expected
constexpr double kSpreads = 2;            // of the target that are kept free

}  // namespace

ChunkControl::ChunkControl(double target_s, int64_t quantum, int64_t most_rows)
    : target_s_(target_s), quantum_(quantum), most_rows_(most_rows) {}

std::optional<double> ChunkControl::expected_s(int64_t num_prefill_rows) const {
  if (num_prefill_rows == 0 || rows_rows_ == 0) return num_prefill_rows == 0 ? base_s_ : std::nullopt;
  return base_s_.value_or(0) + time_rows_ / rows_rows_ * static_cast<double>(num_prefill_rows);
}

int64_t ChunkControl::num_rows() const {
  const double row_s = rows_rows_ > 0 ? time_rows_ / rows_rows_ : 0;
  const double left_s = target_s_ - base_s_.value_or(0) - kSpreads * spread_s_;
  const int64_t trusted = std::min(std::max<int64_t>(2 * largest_, quantum_), most_rows_);
  // Without a rate as many as may be tried; a rate of nothing is no rate.
  const double affordable = row_s > 0 ? left_s / row_s : left_s > 0 ? static_cast<double>(trusted) : 0;
  const auto rows = static_cast<int64_t>(std::clamp(affordable, 0.0, static_cast<double>(trusted)));
  return std::max(rows / quantum_ * quantum_, quantum_);
}

void ChunkControl::add_step(int64_t num_prefill_rows, double seconds) {
  const std::optional<double> expected = expected_s(num_prefill_rows);
  if (expected) seconds = std::min(seconds, kMostTimesExpected * *expected);
  if (num_prefill_rows == 0) {
    base_s_ = base_s_ ? *base_s_ + kBaseWeight * (seconds - *base_s_) : seconds;
    return;
  }
  if (expected) spread_s_ += kSpreadWeight * (std::abs(seconds - *expected) - spread_s_);
  const auto rows = static_cast<double>(num_prefill_rows);
  time_rows_ = kDecay * time_rows_ + std::max(seconds - base_s_.value_or(0), 0.0) * rows;
  rows_rows_ = kDecay * rows_rows_ + rows * rows;
  largest_ = std::max(largest_, num_prefill_rows);
}

}  // namespace ferry
