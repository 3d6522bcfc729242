#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ferry {

/// How long steps took, from which any percentile can be told: counts by classes of length, each 2 % wide, so that a percentile
/// is off by 1 % at most. From a microsecond to a quarter of an hour; what lies outside counts as that. One thread at a time.
class StepSketch {
 public:
  static constexpr double kWidth = 1.02;      // of a class: its end by its begin
  static constexpr double kLeast = 1e-6;      // seconds
  static constexpr int16_t kMaxClass = 1040;  // begins at 880 s

  using Count = std::pair<int16_t, int64_t>;  // a class and how many steps fell into it, at least one

  StepSketch() = default;
  /// Of counts by ascending class, as counts() gives them, and the longest.
  StepSketch(std::vector<Count> counts, double longest);

  void add(double seconds);
  void add(const StepSketch& other);
  /// The steps of `part` are not in it any more; all of them are. The longest stays.
  void subtract(const StepSketch& part);

  int64_t num_steps() const;
  /// The length that a share `q` of the steps did not exceed; 0 if there are none.
  double quantile(double q) const;
  double longest() const { return longest_; }  // seconds, exactly
  std::span<const Count> counts() const { return counts_; }

 private:
  int64_t& count(int16_t step_class);

  std::vector<Count> counts_;  // by class
  double longest_ = 0;
};

}  // namespace ferry
