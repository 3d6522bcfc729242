#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "profiler/counters/counter_readings.h"
#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// What was counted in some stretches of time.
struct CounterSums {
  double ns = 0;  // that the readings cover
  std::array<double, kNumCounters> values{};
  std::array<bool, kNumCounters> is_known{};
  bool is_scaled = false;

  bool knows(Counter counter) const { return is_known[static_cast<std::size_t>(counter)]; }
  double operator[](Counter counter) const { return values[static_cast<std::size_t>(counter)]; }
  void add(const CounterReading& reading, double share, double covered_ns);
};

/// By group, as step_groups() has them, and behind them what lies outside of steps.
using CounterGroups = std::vector<CounterSums>;
std::vector<std::string> counter_groups(const Timeline& timeline);

/// Adds a reading of `rank` to its groups: that of an operator to its step's, any other by the time that it shares with steps.
void add_reading(const ReportInput& input, const RankCapture& rank, const CounterReading& reading, CounterGroups& groups);

/// "absent: cycles, instructions: no PMU (ENOENT)" for each reason that counters from `first` to `last` are absent for.
std::vector<std::string> describe_absent(const RankCapture& rank, Counter first, Counter last);
/// "left out: 3 threads: their files would be too many"; nothing if all threads were counted.
std::optional<std::string> describe_left_out(const RankCapture& rank);
/// All that was not counted, in one line, each reason once; "" if everything was, or nothing was to be. Where not all ranks
/// that counted have it for the same reason, they are named.
std::string describe_uncounted(const std::vector<RankCapture>& ranks);

}  // namespace ferry
