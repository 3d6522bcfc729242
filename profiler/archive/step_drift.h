#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "profiler/archive/step_history.h"

namespace ferry {

/// How steps of one phase compare with those of the day before.
struct PhaseDrift {
  double median_ratio = 0;  // of the last ten minutes to the day; 0: there are too few to tell
  double p99_ratio = 0;     // likewise
  bool is_alarmed = false;
  int64_t num_alarms = 0;  // that began since the start
};
using StepDrift = std::array<PhaseDrift, 3>;  // by Phase

/// Notices that steps take longer than they did. Each kind of steps is compared with itself, so that other loads are no drift;
/// a phase's ratio is the mean of its kinds' (of their logarithms), by how many steps of the last ten minutes they have. One
/// thread at a time.
class DriftWatch {
 public:
  static constexpr int64_t kRecentMinutes = 10;
  static constexpr int64_t kBaselineHours = 24;
  static constexpr int64_t kFewestRecent = 50, kFewestBaseline = 200;  // steps of a kind, for its median
  static constexpr int64_t kFewestRecentP99 = 1000;                    // likewise for its p99
  static constexpr double kAlarmMedian = 1.25, kAlarmP99 = 3;          // either one, for kAlarmLooks in a row
  static constexpr double kCalmMedian = 1.10, kCalmP99 = 2;            // below both, for kCalmLooks in a row
  static constexpr int kAlarmLooks = 2, kCalmLooks = 5;                // of one a minute

  /// A step; the history is told of it, too.
  void add(const StepKind& kind, double seconds, int64_t time_s);
  /// Once a minute.
  const StepDrift& look(const StepHistory& history, int64_t now_s);
  const StepDrift& drift() const { return drift_; }

 private:
  struct Minute {
    int64_t minute = 0;
    StepHistory::Kinds kinds;
  };
  struct Looks {
    int high = 0, low = 0;  // in a row
  };

  void judge(PhaseDrift& drift, Looks& looks);

  std::deque<Minute> recent_;
  StepDrift drift_{};
  std::array<Looks, 3> looks_{};
};

}  // namespace ferry
