#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/span_record.h"

// What counters of the kernel and the processor said while a capture ran: which there are, which are absent and why, and what
// they counted, by thread and time. A capture keeps it as its section `counters`.

namespace ferry {

/// What can be counted. Names and order are the file's: what is added goes to the end.
#define FERRY_COUNTERS(X)                         \
  X(kCycles, "cycles", "")                        \
  X(kInstructions, "instructions", "")            \
  X(kLlcReferences, "llc_references", "")         \
  X(kLlcMisses, "llc_misses", "")                 \
  X(kStalledCycles, "stalled_cycles", "")         \
  X(kTaskClock, "task_clock", "ns")               \
  X(kMinorFaults, "minor_faults", "")             \
  X(kMajorFaults, "major_faults", "")             \
  X(kContextSwitches, "context_switches", "")     \
  X(kMigrations, "migrations", "")                \
  X(kRunQueueDelay, "run_queue_delay", "ns")      \
  X(kSocketMemoryBytes, "socket_memory", "bytes") \
  X(kPackageEnergy, "package_energy", "uJ")       \
  X(kDramEnergy, "dram_energy", "uJ")             \
  X(kCoreEnergy, "core_energy", "uJ")             \
  X(kPlatformEnergy, "platform_energy", "uJ")

enum class Counter : uint8_t {
#define FERRY_COUNTER_ENUMERATOR(id, name, unit) id,
  FERRY_COUNTERS(FERRY_COUNTER_ENUMERATOR)
#undef FERRY_COUNTER_ENUMERATOR
};

struct CounterInfo {
  const char* name;
  const char* unit;  // "": a plain number
};

inline constexpr CounterInfo kCounters[] = {
#define FERRY_COUNTER_INFO(id, name, unit) {name, unit},
    FERRY_COUNTERS(FERRY_COUNTER_INFO)
#undef FERRY_COUNTER_INFO
};
inline constexpr std::size_t kNumCounters = sizeof kCounters / sizeof kCounters[0];
/// Every capture tells of so many, if only that they are absent; few machines tell of those behind them.
inline constexpr std::size_t kNumToldByAll = static_cast<std::size_t>(Counter::kDramEnergy) + 1;

/// Values by Counter.
using CounterValues = std::array<uint64_t, kNumCounters>;
inline constexpr uint64_t kNotCounted = UINT64_MAX;

/// Where a counter's values come from, or why there are none.
struct CounterSource {
  Counter counter{};
  std::string source;  // "perf", "schedstat", "powercap"; empty: it is absent
  std::string absent;  // "no PMU (ENOENT)"; empty: it is there

  friend bool operator==(const CounterSource&, const CounterSource&) = default;
};

/// What was counted in a stretch of time.
struct CounterReading {
  uint64_t begin = 0, end = 0;  // ticks
  uint32_t step = kNoStep;      // at its end
  int32_t tid = 0;              // of a thread of the rank; 0: of the whole machine, as far as the counter reaches
  Zone zone = Zone::kStep;      // an operator, summed over its calls; kStep: all that the thread did
  bool is_part = false;         // of all operators of the zone's part of a layer together
  bool is_scaled = false;       // counters took turns: values are extrapolated from a part of the time
  CounterValues values{};       // kNotCounted where nothing counted

  uint64_t operator[](Counter counter) const { return values[static_cast<std::size_t>(counter)]; }
  uint64_t& operator[](Counter counter) { return values[static_cast<std::size_t>(counter)]; }
  friend bool operator==(const CounterReading&, const CounterReading&) = default;
};

inline constexpr std::size_t kMaxCounterReadings = std::size_t{1} << 20;

struct CounterCapture {
  std::vector<CounterSource> sources;    // each counter at most once; none of an older or a bare capture
  std::vector<CounterReading> readings;  // of a thread by time
  uint64_t num_lost = 0;                 // readings for which there was no room
  uint64_t num_threads_left_out = 0;     // which the process may not open so many files for

  friend bool operator==(const CounterCapture&, const CounterCapture&) = default;
};

/// As the bytes of a section; empty if there is nothing to keep. Counters that nothing counted take no room.
std::vector<std::byte> encode_counters(const CounterCapture& counters);
/// Reads them back; counters of later versions are skipped. Throws Error{kInvalidArgument} that names `source`.
CounterCapture decode_counters(std::span<const std::byte> bytes, const std::string& source);

}  // namespace ferry
