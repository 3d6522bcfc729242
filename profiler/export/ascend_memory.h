#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiler/export/ascend_database_tables.h"
#include "profiler/export/ascend_rank.h"

// What a rank's memory was, for the readers' memory pages: a line over time for each component, and blocks that were held. It
// comes from the capture's samples (profiler/memory); a capture without any knows the most that the process held.

namespace ferry {

/// What a component held at a moment.
struct AscendMemorySample {
  int64_t at_ns = 0;      // of the timeline
  std::string component;  // to the readers "APP" is the whole process, "PTA+GE" what the framework's allocators have
  int64_t allocated_bytes = 0, reserved_bytes = 0, active_bytes = 0;
};

/// What one use of memory ("weights", "kv_cache", find_memory_stack()) had at a moment.
struct AscendMemoryUse {
  int64_t at_ns = 0;
  std::string name;
  int64_t bytes = 0;
};

/// A block that was held from one moment to another.
struct AscendMemoryBlock {
  std::string name;
  int64_t begin_ns = 0;
  std::optional<int64_t> end_ns;  // absent: it was held still when the capture ended
  int64_t bytes = 0;
};

struct AscendMemory {
  std::vector<AscendMemorySample> samples;  // by time
  std::vector<AscendMemoryUse> uses;        // by time
  std::vector<AscendMemoryBlock> blocks;    // by begin
};

/// Times are the timeline's. "APP" is the resident set; of "PTA+GE" what was asked for by name or from the C library is
/// allocated, and all of the process's own pages are reserved. A block is by how much a use grew from one sample to the next,
/// held until the use has shrunk by it again, the youngest first: at each sample the blocks of a use add up to it.
AscendMemory find_memory(const AscendRank& rank);

void write_memory_record(const AscendRank& rank, const AscendMemory& memory, TextFile& out);
/// A line for each use: npu_module_mem.csv.
void write_module_memory(const AscendRank& rank, const AscendMemory& memory, TextFile& out);
void write_operator_memory(const AscendRank& rank, const AscendMemory& memory, TextFile& out);
/// The same as tables of the rank's database.
void write_memory_tables(const AscendRank& rank, const AscendMemory& memory, StringIds& strings, SqliteFile& file);

}  // namespace ferry
