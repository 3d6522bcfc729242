#pragma once

#include <cstdint>
#include <optional>

namespace ferry {

/// How many rows of prompts a step may have beside sequences that decode, so that the step takes no longer than a target: the
/// time between two tokens of a stream is that of a step.
///
/// The model is seconds = a + b * rows. a is what steps without rows of prompts take, on a moving average; b is fitted to the
/// steps that have some, by least squares through a, each step counting 7/8 of the one after it. Both follow what changes
/// slowly: how many sequences decode, and how long the prompts are before the rows. Measurements are bounded, so that one stall
/// of the host is no new rate. What measurements differ from the model by, on average, is kept free of the target twice, which
/// some 19 of 20 steps stay within.
///
/// Nothing is taken for granted that was not measured: the first step has one quantum, and none has more than twice the rows of
/// the largest so far. A quantum is always allowed, also where the target cannot be met: prompts do not starve.
class ChunkControl {
 public:
  /// `quantum` divides what is allowed, `most_rows` (>= quantum) bounds it.
  ChunkControl(double target_s, int64_t quantum, int64_t most_rows);

  /// Of prompts, for the next step in which sequences decode: a multiple of the quantum.
  int64_t num_rows() const;

  /// A step in which sequences decoded took so long.
  void add_step(int64_t num_prefill_rows, double seconds);

  double target_s() const { return target_s_; }
  /// What the model says a step takes; nothing before the first measurement.
  std::optional<double> expected_s(int64_t num_prefill_rows) const;

 private:
  const double target_s_;
  const int64_t quantum_, most_rows_;
  std::optional<double> base_s_;  // a
  double time_rows_ = 0;          // sums for b, of steps with rows: (seconds - a) * rows …
  double rows_rows_ = 0;          // … and rows * rows
  double spread_s_ = 0;           // mean of |measured - expected|
  int64_t largest_ = 0;           // rows of prompts of a step so far
};

}  // namespace ferry
