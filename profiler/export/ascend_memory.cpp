#include "profiler/export/ascend_memory.h"

#include <algorithm>

namespace ferry {
namespace {

constexpr double kKb = 1024, kMb = 1024 * 1024;

double kb(int64_t bytes) { return static_cast<double>(bytes) / kKb; }
double memory_mb(int64_t bytes) { return static_cast<double>(bytes) / kMb; }

std::string device_type(const AscendRank& rank) { return "NPU:" + std::to_string(rank.device); }

/// What was held when a block came or went, as the last sample before has it; bytes.
int64_t held_bytes(const AscendMemory& memory, int64_t at_ns) {
  const auto next = std::partition_point(memory.samples.begin(), memory.samples.end(),
                                         [&](const AscendMemorySample& s) { return s.at_ns <= at_ns; });
  return next == memory.samples.begin() ? 0 : (next - 1)->allocated_bytes;
}

/// For CSV: no separators, quotes or ends of lines.
std::string plain_cell(std::string text) {
  for (char& c : text) {
    if (c == ',' || c == '"' || static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return repaired_text(text);
}

}  // namespace

AscendMemory find_memory(const AscendRank& rank) {
  const int64_t peak = rank.capture.peak_rss_bytes;
  if (peak <= 0) return {};
  const Timeline& timeline = rank.input.timeline;
  AscendMemory memory;
  for (const int64_t at_ns : {timeline.begin_ns, timeline.end_ns}) memory.samples.push_back({at_ns, "APP", peak, peak, peak});
  memory.blocks.push_back({"process (peak resident set)", timeline.begin_ns, timeline.end_ns, peak});
  return memory;
}

void write_memory_record(const AscendRank& rank, const AscendMemory& memory, TextFile& out) {
  out << "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type\n";
  for (const AscendMemorySample& sample : memory.samples) {
    out << plain_cell(sample.component) << ",";
    out.scaled(sample.at_ns + kTraceStartNs, 3) << "\t,";
    out.rounded(memory_mb(sample.allocated_bytes), 6) << ",";
    out.rounded(memory_mb(sample.reserved_bytes), 6) << ",";
    out.rounded(memory_mb(sample.active_bytes), 6) << ",," << device_type(rank) << "\n";
  }
}

void write_operator_memory(const AscendRank& rank, const AscendMemory& memory, TextFile& out) {
  out << "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),"
         "Allocation Total Allocated(MB),Allocation Total Reserved(MB),Allocation Total Active(MB),"
         "Release Total Allocated(MB),Release Total Reserved(MB),Release Total Active(MB),Stream Ptr,Device Type\n";
  for (const AscendMemoryBlock& block : memory.blocks) {
    out << plain_cell(block.name) << ",";
    out.rounded(kb(block.bytes), 3) << ",";
    out.scaled(block.begin_ns + kTraceStartNs, 3) << "\t,";
    for (int i = 0; i < 2; ++i) out.scaled(block.end_ns + kTraceStartNs, 3) << "\t,";
    for (int i = 0; i < 2; ++i) out.scaled(block.end_ns - block.begin_ns, 3) << ",";
    for (const int64_t at_ns : {block.begin_ns, block.end_ns}) {
      for (int i = 0; i < 3; ++i) out.rounded(memory_mb(held_bytes(memory, at_ns)), 6) << ",";
    }
    out << "," << device_type(rank) << "\n";
  }
}

void write_memory_tables(const AscendRank& rank, const AscendMemory& memory, StringIds& strings, SqliteFile& file) {
  SqliteTable record(file, "MEMORY_RECORD",
                     "component INTEGER, timestamp INTEGER, totalAllocated INTEGER, totalReserved INTEGER, "
                     "totalActive INTEGER, streamPtr INTEGER, deviceId INTEGER");
  for (const AscendMemorySample& sample : memory.samples) {
    record.insert(strings.id_of(sample.component), sample.at_ns + kTraceStartNs, sample.allocated_bytes, sample.reserved_bytes,
                  sample.active_bytes, nullptr, rank.device);
  }
  SqliteTable blocks(file, "OP_MEMORY",
                     "name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER, activeReleaseTime INTEGER, "
                     "duration INTEGER, activeDuration INTEGER, allocationTotalAllocated INTEGER, "
                     "allocationTotalReserved INTEGER, allocationTotalActive INTEGER, releaseTotalAllocated INTEGER, "
                     "releaseTotalReserved INTEGER, releaseTotalActive INTEGER, streamPtr INTEGER, deviceId INTEGER");
  for (const AscendMemoryBlock& block : memory.blocks) {
    const int64_t begin = block.begin_ns + kTraceStartNs, end = block.end_ns + kTraceStartNs;
    const int64_t before = held_bytes(memory, block.begin_ns), after = held_bytes(memory, block.end_ns);
    blocks.insert(strings.id_of(block.name), block.bytes, begin, end, end, end - begin, end - begin, before, before, before,
                  after, after, after, nullptr, rank.device);
  }
}

}  // namespace ferry
