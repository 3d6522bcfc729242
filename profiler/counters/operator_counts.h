#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "profiler/counters/counter_readings.h"
#include "profiler/counters/perf_group.h"
#include "profiler/counters/perf_pages.h"

namespace ferry {

/// Tells a thread's counts apart by the operator that it is in. Where programs may read the hardware's counters, each
/// operator has its own; else a reading is a system call, and operators that follow each other in the same part of a layer have
/// theirs together. Used by the thread that it counts, and made there.
class OperatorCounts {
 public:
  OperatorCounts();

  /// Whether there is anything to count.
  bool is_open() const { return group_.is_open(); }
  bool tells_operators_apart() const { return by_page_; }

  /// A span of the thread begins, or has ended. What is in no operator counts for none; of one operator inside of another, each
  /// has its own, and what follows the inner one counts for none.
  void begin(Zone zone) { enter(zone_info(zone).kind == ZoneKind::kCompute ? zone : Zone::kStep); }
  void end() {
    if (by_page_) enter(Zone::kStep);
  }

  /// What was counted since the last call, for each operator or part that was entered meanwhile; of no step yet, and ticks from
  /// `since` to `now`. Valid until the next call.
  const std::vector<CounterReading>& take(int32_t tid, uint64_t since, uint64_t now);

 private:
  /// kStep: in no operator.
  void enter(Zone zone) {
    if (zone == zone_) return;
    const bool stays = !by_page_ && zone != Zone::kStep && zone_ != Zone::kStep;
    if (stays && zone_info(zone).part == zone_info(zone_).part) return;
    change(zone);
  }
  void change(Zone zone);
  PerfReading read() const;

  struct Sum {
    bool is_used = false, is_scaled = false;
    CounterValues values{};
  };

  PerfGroup group_;
  PerfPages pages_;
  bool by_page_ = false;
  Zone zone_ = Zone::kStep;
  PerfReading last_;
  std::array<Sum, kNumZones> sums_{};  // by zone, or by a zone of the part
  std::vector<CounterReading> taken_;
};

namespace detail {
/// Of the calling thread; null while nobody asks for counts of operators.
extern thread_local constinit OperatorCounts* operator_counts;
}  // namespace detail

}  // namespace ferry
