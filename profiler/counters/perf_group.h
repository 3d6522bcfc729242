#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/counters/counter_readings.h"
#include "runtime/base/file_descriptor.h"

namespace ferry {

/// An event of the kernel's perf_event_open: type and configuration as <linux/perf_event.h> has them.
struct PerfEvent {
  Counter counter{};
  uint32_t type = 0;
  uint64_t config = 0;
  bool in_user_space = true;  // it happens there, too: it counts for something where the kernel itself may not be watched
};

/// Cycles, instructions, references and misses of the last level, stalled cycles: of a processor that lets itself be counted.
std::span<const PerfEvent> hardware_events();
/// Page faults, switches and migrations, which the kernel counts on any machine.
std::span<const PerfEvent> software_events();

/// What a group's counters stood at, from its opening on.
struct PerfReading {
  CounterValues values{};                   // kNotCounted where the group has no such counter
  uint64_t enabled_ns = 0, running_ns = 0;  // the thread ran; of that, the counters did: less where groups take turns
};

/// What was counted between two readings of a group. Where it took turns with others the counts are extrapolated to the whole
/// time, and `is_scaled` becomes true; where it had no turn, nothing was counted.
CounterValues count_between(const PerfReading& before, const PerfReading& after, bool& is_scaled);

/// Events of one thread that are counted together. Where the kernel has none, allows none or knows none, sources() says
/// so; that is no error. Any thread may read it, one at a time.
class PerfGroup {
 public:
  /// Of thread `tid` of this process; 0: of the calling one.
  PerfGroup(std::span<const PerfEvent> events, int64_t tid);

  /// One for each event.
  const std::vector<CounterSource>& sources() const { return sources_; }
  bool is_open() const { return !members_.empty(); }
  /// One system call. All kNotCounted if nothing is open, or the thread is gone.
  PerfReading read() const;

 private:
  friend class PerfPages;
  struct Member {
    Counter counter;
    FileDescriptor file;
  };

  std::vector<Member> members_;  // the first one leads
  std::vector<CounterSource> sources_;
};

/// "no PMU (ENOENT)", "not allowed (EACCES, perf_event_paranoid 3)": why perf_event_open gave `error`.
std::string perf_refusal(int error);

}  // namespace ferry
