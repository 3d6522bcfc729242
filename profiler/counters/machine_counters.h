#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "profiler/counters/counter_readings.h"

namespace ferry {

/// What is counted of a whole machine, whoever uses it: bytes that went to and from its memory, and energy. Memory: the events
/// of its controllers (uncore_imc*, amd_umc*), else resctrl's. Energy: powercap's intel-rapl zones, which AMD's have, too, else
/// the PMU `power`: packages, DRAM and the platform (psys, which holds both), and cores where no package is counted (the
/// kernel's Documentation/power/powercap/powercap.rst, arch/x86/events/rapl.c). What a machine has not, or allows nobody to
/// read, is absent. One thread at a time.
class MachineCounters {
 public:
  /// From `now` (ticks) on. Files are looked for below `root`: "/".
  MachineCounters(const std::filesystem::path& root, uint64_t now);
  ~MachineCounters();
  MachineCounters(const MachineCounters&) = delete;
  MachineCounters& operator=(const MachineCounters&) = delete;

  /// One for each counter of machines; of cores and the platform, which few machines tell of, only where there is one.
  const std::vector<CounterSource>& sources() const { return sources_; }
  /// What was counted since the last call, or the construction. Of a machine without any such counter all are kNotCounted.
  CounterReading take(uint64_t now);

  /// One number that only grows, in the counter's unit.
  class Meter {
   public:
    virtual ~Meter() = default;
    /// Since the last call; kNotCounted if it cannot be read any more.
    virtual uint64_t take() = 0;
  };

 private:
  struct EnergyZone;
  struct Counted {
    Counter counter;
    std::unique_ptr<Meter> meter;
  };

  void find_energy(const std::filesystem::path& root);
  void add_zone(const std::filesystem::path& root, const EnergyZone& zone);
  bool counts(Counter counter) const;
  void find_memory(const std::filesystem::path& root);

  std::vector<Counted> meters_;  // of a counter, all are added up
  std::vector<CounterSource> sources_;
  uint64_t since_;
};

}  // namespace ferry
