#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "profiler/memory/memory_samples.h"

namespace ferry {

/// What tables and timelines show of a rank's memory: a kind, or what is made of several.
struct MemoryLine {
  std::string name, role;                             // "weights", "held"
  std::function<int64_t(const MemorySample&)> bytes;  // kNotKnown: it is not known
};

/// What lies in memory, kind by kind, so that all of them add up to the resident set; what was never anything is left out. The
/// last one, "unaccounted", is what no kind has of the process's own pages: stacks, libraries' data.
std::vector<MemoryLine> find_memory_stack(const std::vector<MemorySample>& samples);

const char* memory_role_name(MemoryRole role);  // "held", "reserved", "used", "system"

}  // namespace ferry
