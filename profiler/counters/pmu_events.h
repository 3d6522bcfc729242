#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

// Events of devices outside of cores, as the kernel describes them in files: memory controllers, energy.

namespace ferry {

/// An event that is counted for a whole package, on one of its cores.
struct PmuEvent {
  uint32_t type = 0;
  uint64_t config = 0, config1 = 0;
  std::vector<int> cpus;  // one of each package; -1 is asked for none
  double scale = 1;       // of a count to `unit`
  std::string unit;       // "MiB", "Joules", "" where its file says nothing
};

/// The event `name` ("cas_count_read") of a device's folder (/sys/bus/event_source/devices/uncore_imc_0). Nothing if the device
/// has no such event, or describes it in a way that is not understood.
std::optional<PmuEvent> find_pmu_event(const std::filesystem::path& device, const std::string& name);

/// "0-2,8" as the kernel lists CPUs; at most 4096 of them, none of what cannot be read.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace ferry
