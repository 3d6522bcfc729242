#include "profiler/export/ascend_memory.h"

#include <algorithm>
#include <utility>

#include "profiler/report/views/memory_lines.h"

namespace ferry {
namespace {

constexpr const char* kProcess = "APP";
constexpr const char* kAllocators = "PTA+GE";
constexpr double kKb = 1024, kMb = 1024 * 1024;

double kb(int64_t bytes) { return static_cast<double>(bytes) / kKb; }
double memory_mb(int64_t bytes) { return static_cast<double>(bytes) / kMb; }

std::string device_type(const AscendRank& rank) { return "NPU:" + std::to_string(rank.device); }

/// What the process held when a block came or went, as the last sample before has it.
AscendMemorySample held_at(const AscendMemory& memory, int64_t at_ns) {
  auto sample = std::ranges::upper_bound(memory.samples, at_ns, {}, &AscendMemorySample::at_ns);
  while (sample != memory.samples.begin()) {
    if ((--sample)->component == kProcess) return *sample;
  }
  return {};
}

/// For CSV: no separators, quotes or ends of lines.
std::string plain_cell(std::string text) {
  for (char& c : text) {
    if (c == ',' || c == '"' || static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return repaired_text(text);
}

/// The blocks of one use, as it grows and shrinks.
class BlockStack {
 public:
  BlockStack(std::string name, std::vector<AscendMemoryBlock>& done) : name_(std::move(name)), done_(done) {}

  void set(int64_t at_ns, int64_t bytes) {
    for (; held_ > bytes; shrink(at_ns, held_ - bytes)) {
    }
    if (bytes > held_) open_.push_back({.name = name_, .begin_ns = at_ns, .end_ns = {}, .bytes = bytes - held_});
    held_ = bytes;
  }
  void end() { done_.insert(done_.end(), open_.begin(), open_.end()); }

 private:
  /// Takes at most so many bytes of the youngest block.
  void shrink(int64_t at_ns, int64_t bytes) {
    AscendMemoryBlock& youngest = open_.back();
    const int64_t part = std::min(bytes, youngest.bytes);
    done_.push_back({.name = name_, .begin_ns = youngest.begin_ns, .end_ns = at_ns, .bytes = part});
    youngest.bytes -= part;
    held_ -= part;
    if (youngest.bytes == 0) open_.pop_back();
  }

  const std::string name_;
  std::vector<AscendMemoryBlock>& done_;
  std::vector<AscendMemoryBlock> open_;  // oldest first
  int64_t held_ = 0;                     // by these
};

/// What of a use is known at a sample: nothing is none.
int64_t known_bytes(const MemoryLine& line, const MemorySample& sample) { return std::max<int64_t>(line.bytes(sample), 0); }

/// Of a capture without samples: the most that the process held, for the whole time.
AscendMemory find_peak(const AscendRank& rank) {
  const int64_t peak = rank.capture.peak_rss_bytes;
  if (peak <= 0) return {};
  const Timeline& timeline = rank.input.timeline;
  AscendMemory memory;
  for (const int64_t at_ns : {timeline.begin_ns, timeline.end_ns})
    memory.samples.push_back({at_ns, kProcess, peak, peak, peak});
  memory.blocks.push_back({"process (peak resident set)", timeline.begin_ns, timeline.end_ns, peak});
  return memory;
}

}  // namespace

AscendMemory find_memory(const AscendRank& rank) {
  const std::vector<MemorySample>& samples = rank.capture.memory.samples;
  if (samples.empty()) return find_peak(rank);
  const Timeline& timeline = rank.input.timeline;
  const auto time_of = [&](const MemorySample& sample) {
    return std::clamp(timeline.to_ns(rank.capture, sample.ticks), timeline.begin_ns, timeline.end_ns);
  };
  AscendMemory memory;
  for (const MemorySample& sample : samples) {
    const int64_t held = sample.total(MemoryRole::kHeld), own = std::max(sample[MemoryKind::kAnonymous], held);
    const int64_t resident = sample.total(MemoryRole::kResident);
    memory.samples.push_back({time_of(sample), kProcess, resident, resident, resident});
    memory.samples.push_back({time_of(sample), kAllocators, held, own, held});
  }
  for (const MemoryLine& line : find_memory_stack(samples)) {
    BlockStack stack(line.name, memory.blocks);
    for (const MemorySample& sample : samples) {
      memory.uses.push_back({time_of(sample), line.name, known_bytes(line, sample)});
      stack.set(time_of(sample), known_bytes(line, sample));
    }
    stack.end();
  }
  std::ranges::stable_sort(memory.samples, {}, &AscendMemorySample::at_ns);
  std::ranges::stable_sort(memory.uses, {}, &AscendMemoryUse::at_ns);
  std::ranges::stable_sort(memory.blocks, {}, &AscendMemoryBlock::begin_ns);
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
  const auto write_held = [&](int64_t at_ns) {
    const AscendMemorySample held = held_at(memory, at_ns);
    for (const int64_t bytes : {held.allocated_bytes, held.reserved_bytes, held.active_bytes})
      out.rounded(memory_mb(bytes), 6) << ",";
  };
  for (const AscendMemoryBlock& block : memory.blocks) {
    out << plain_cell(block.name) << ",";
    out.rounded(kb(block.bytes), 3) << ",";
    out.scaled(block.begin_ns + kTraceStartNs, 3) << "\t,";
    if (block.end_ns) {
      for (int i = 0; i < 2; ++i) out.scaled(*block.end_ns + kTraceStartNs, 3) << "\t,";
      for (int i = 0; i < 2; ++i) out.scaled(*block.end_ns - block.begin_ns, 3) << ",";
      write_held(block.begin_ns);
      write_held(*block.end_ns);
    } else {
      out << ",,,,";  // times of its release
      write_held(block.begin_ns);
      out << ",,,";
    }
    out << "," << device_type(rank) << "\n";
  }
}

void write_module_memory(const AscendRank& rank, const AscendMemory& memory, TextFile& out) {
  out << "Component,Timestamp(us),Total Reserved(MB),Device\n";
  for (const AscendMemoryUse& use : memory.uses) {
    out << plain_cell(use.name) << ",";
    out.scaled(use.at_ns + kTraceStartNs, 3) << "\t,";
    out.rounded(memory_mb(use.bytes), 6) << "," << device_type(rank) << "\n";
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
    const AscendMemorySample before = held_at(memory, block.begin_ns);
    std::optional<int64_t> end, duration, allocated, reserved, active;
    if (block.end_ns) {
      const AscendMemorySample after = held_at(memory, *block.end_ns);
      end = *block.end_ns + kTraceStartNs;
      duration = *block.end_ns - block.begin_ns;
      allocated = after.allocated_bytes;
      reserved = after.reserved_bytes;
      active = after.active_bytes;
    }
    blocks.insert(strings.id_of(block.name), block.bytes, block.begin_ns + kTraceStartNs, end, end, duration, duration,
                  before.allocated_bytes, before.reserved_bytes, before.active_bytes, allocated, reserved, active, nullptr,
                  rank.device);
  }
  SqliteTable uses(file, "NPU_MODULE_MEM", "moduleId INTEGER, timestamp INTEGER, totalReserved INTEGER, deviceId INTEGER");
  for (const AscendMemoryUse& use : memory.uses)
    uses.insert(strings.id_of(use.name), use.at_ns + kTraceStartNs, use.bytes, rank.device);
}

}  // namespace ferry
