#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/export/ascend_database_tables.h"
#include "profiler/export/ascend_rank.h"

// What a rank's memory was, for the readers' memory pages: a line over time for each component, and blocks that were held.

namespace ferry {

/// What a component held at a moment.
struct AscendMemorySample {
  int64_t at_ns = 0;      // of the timeline
  std::string component;  // "APP" is the whole process to the readers, "PTA" the framework's allocator
  int64_t allocated_bytes = 0, reserved_bytes = 0, active_bytes = 0;
};

/// A block that was held from one moment to another.
struct AscendMemoryBlock {
  std::string name;
  int64_t begin_ns = 0, end_ns = 0;  // of the timeline
  int64_t bytes = 0;
};

struct AscendMemory {
  std::vector<AscendMemorySample> samples;  // by time
  std::vector<AscendMemoryBlock> blocks;
};

/// What the capture knows: the most that the process held, for the whole time.
AscendMemory find_memory(const AscendRank& rank);

void write_memory_record(const AscendRank& rank, const AscendMemory& memory, TextFile& out);
void write_operator_memory(const AscendRank& rank, const AscendMemory& memory, TextFile& out);
/// The same as tables of the rank's database.
void write_memory_tables(const AscendRank& rank, const AscendMemory& memory, StringIds& strings, SqliteFile& file);

}  // namespace ferry
