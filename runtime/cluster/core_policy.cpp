#include "runtime/cluster/core_policy.h"

#include <sched.h>

#include <algorithm>
#include <functional>
#include <string_view>

namespace ferry {
namespace {

constexpr int64_t kMicroBatchRows = 256;  // of fewer rows, reading the weights twice costs what overlapping wins

/// The cores that this process may run on, empty if the system does not say.
const cpu_set_t& own_cores() {
  static const cpu_set_t cores = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return set;
  }();
  return cores;
}

}  // namespace

int available_cores() { return std::max(1, CPU_COUNT(&own_cores())); }

std::string place_name(const std::string& host) {
  const std::string_view cores(reinterpret_cast<const char*>(&own_cores()), sizeof(cpu_set_t));
  return host + " " + std::to_string(std::hash<std::string_view>()(cores));
}

std::string host_of_place(const std::string& place) { return place.substr(0, place.rfind(' ')); }

int CorePolicy::default_threads() const {
  if (is_coordinator) return cores;
  const int workers = ranks_on_cores - coordinators_on_cores;
  return std::clamp(2 * cores / std::max(1, workers), 1, cores);
}

int64_t CorePolicy::default_micro_batch() const { return !has_workers || ranks_on_cores > 1 ? 0 : kMicroBatchRows; }

std::chrono::microseconds CorePolicy::thread_spin(int num_threads) const {
  return std::chrono::microseconds(ranks_on_cores > 1 || num_threads > cores ? 0 : 50);
}

}  // namespace ferry
