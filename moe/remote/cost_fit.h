#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "moe/placement/placement_types.h"

namespace ferry {

/// What an expert costs, learnt from replies: the time that a worker computes is taken to be
///
///   overhead + fixed * touched experts + per_row * rows
///
/// of which only fixed / per_row is of interest, the rows that reading an expert takes as long as. Replies are gathered in
/// classes, by experts and by rows of an expert, each by powers of two. Of a class the median of late is kept, which a stalled
/// worker does not move and which forgets slowly; so a prompt now and then is not lost among thousands of decode steps. The fit
/// is by least squares of relative errors over the classes, and drawn a little to the first cost: replies that are
/// all alike leave it where it is.
///
/// learn() takes some 20 ns; fit() a microsecond, and is for between steps.
class ExpertCostFit {
 public:
  static constexpr double kLeastRatio = 1, kMostRatio = 256;  // of fixed to per_row
  static constexpr int64_t kMinReplies = 128;                 // of a class, before it counts

  explicit ExpertCostFit(const ExpertCost& first) : first_(first), cost_(first) {}

  /// A worker of `speed` (1: the median) has computed `rows` of `touched` experts for `time`. Nothing is learnt of no rows.
  void learn(int64_t touched, int64_t rows, std::chrono::nanoseconds time, double speed);
  /// The cost by all that was learnt, with the first one's per_row. It changes only if the ratio does by more than a tenth.
  const ExpertCost& fit();

 private:
  static constexpr std::size_t kTouchedClasses = 9, kRowClasses = 12;  // the last ones have no end
  struct Class {
    int64_t num_replies = 0;
    double experts = 0, rows = 0;  // running means
    double seconds = 0;            // running median of a unit of the first cost
  };

  const ExpertCost first_;
  ExpertCost cost_;
  std::array<Class, kTouchedClasses * kRowClasses> classes_;
};

}  // namespace ferry
