#include "profiler/counters/perf_group.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace ferry {
namespace {

constexpr PerfEvent kHardware[] = {
    {Counter::kCycles, PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {Counter::kInstructions, PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {Counter::kLlcReferences, PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES},
    {Counter::kLlcMisses, PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {Counter::kStalledCycles, PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND},
};
constexpr PerfEvent kSoftware[] = {
    {Counter::kMinorFaults, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN},
    {Counter::kMajorFaults, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ},
    {Counter::kContextSwitches, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, false},
    {Counter::kMigrations, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS, false},
};

enum class Watched { kAll, kUserSpace };

int open_event(const PerfEvent& event, int64_t tid, int leader, Watched watched) {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = event.type;
  attributes.config = event.config;
  attributes.exclude_kernel = watched == Watched::kUserSpace ? 1 : 0;
  attributes.exclude_hv = attributes.exclude_kernel;
  attributes.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  constexpr int kAnyCpu = -1;
  return static_cast<int>(syscall(SYS_perf_event_open, &attributes, tid, kAnyCpu, leader, PERF_FLAG_FD_CLOEXEC));
}

std::string paranoid_level() {
  std::ifstream file("/proc/sys/kernel/perf_event_paranoid");
  std::string level;
  file >> level;
  return level;
}

bool is_refusal(int error) { return error == EACCES || error == EPERM; }

}  // namespace

std::span<const PerfEvent> hardware_events() { return kHardware; }
std::span<const PerfEvent> software_events() { return kSoftware; }

std::string perf_refusal(int error) {
  switch (error) {
    case ENOENT: return "no PMU (ENOENT)";
    case EOPNOTSUPP: return "not on this processor (EOPNOTSUPP)";
    case EINVAL: return "no counter left for it (EINVAL)";
    case ENOSYS: return "no perf_event_open (ENOSYS)";
    case EACCES:
    case EPERM: {
      const std::string level = paranoid_level();
      return std::string("not allowed (") + (error == EPERM ? "EPERM" : "EACCES") +
             (level.empty() ? ")" : ", perf_event_paranoid " + level + ")");
    }
    default: return std::string("perf_event_open: ") + std::strerror(error);
  }
}

PerfGroup::PerfGroup(std::span<const PerfEvent> events, int64_t tid) {
  for (const PerfEvent& event : events) {
    const int leader = members_.empty() ? -1 : members_.front().file.get();
    const char* source = "perf";
    int file = open_event(event, tid, leader, Watched::kAll);
    int error = errno;
    if (file < 0 && is_refusal(error) && event.in_user_space) {
      source = "perf, user space";
      file = open_event(event, tid, leader, Watched::kUserSpace);
      error = errno;
    }
    if (file < 0) {
      sources_.push_back({event.counter, "", perf_refusal(error)});
      continue;
    }
    members_.push_back({event.counter, FileDescriptor(file)});
    sources_.push_back({event.counter, source, ""});
  }
}

PerfReading PerfGroup::read() const {
  PerfReading reading;
  reading.values.fill(kNotCounted);
  if (members_.empty()) return reading;
  std::array<uint64_t, 3 + kNumCounters> words{};  // members, enabled, running, values
  const ssize_t size = ::read(members_.front().file.get(), words.data(), sizeof words);
  if (size < static_cast<ssize_t>((3 + members_.size()) * sizeof(uint64_t)) || words[0] != members_.size()) return reading;
  reading.enabled_ns = words[1];
  reading.running_ns = words[2];
  for (std::size_t m = 0; m < members_.size(); ++m)
    reading.values[static_cast<std::size_t>(members_[m].counter)] = words[3 + m];
  return reading;
}

CounterValues count_between(const PerfReading& before, const PerfReading& after, bool& is_scaled) {
  CounterValues counted;
  counted.fill(kNotCounted);
  const uint64_t enabled = after.enabled_ns - before.enabled_ns, running = after.running_ns - before.running_ns;
  if (running == 0 && enabled > 0) return counted;
  const bool takes_turns = running < enabled;
  for (std::size_t c = 0; c < kNumCounters; ++c) {
    if (before.values[c] == kNotCounted || after.values[c] == kNotCounted) continue;
    counted[c] = after.values[c] - before.values[c];
    if (!takes_turns) continue;
    counted[c] =
        static_cast<uint64_t>(static_cast<double>(counted[c]) * static_cast<double>(enabled) / static_cast<double>(running));
    is_scaled = true;
  }
  return counted;
}

}  // namespace ferry
