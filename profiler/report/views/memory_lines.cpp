#include "profiler/report/views/memory_lines.h"

#include <algorithm>

namespace ferry {
namespace {

int64_t unaccounted_bytes(const MemorySample& sample) {
  const int64_t anonymous = sample[MemoryKind::kAnonymous];
  return anonymous == kNotKnown ? kNotKnown : anonymous - sample.total(MemoryRole::kHeld);
}

}  // namespace

const char* memory_role_name(MemoryRole role) {
  switch (role) {
    case MemoryRole::kHeld: return "held";
    case MemoryRole::kReserved: return "reserved";
    case MemoryRole::kUsed: return "used";
    case MemoryRole::kResident: return "system";
    case MemoryRole::kDevice: return "device";
  }
  return "";
}

std::vector<MemoryLine> find_memory_stack(const std::vector<MemorySample>& samples) {
  std::vector<MemoryLine> lines;
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
    const MemoryRole role = kMemoryKinds[k].role;
    const auto kind = static_cast<MemoryKind>(k);
    const bool is_of_files = kind == MemoryKind::kFiles || kind == MemoryKind::kShared;
    const auto is_something = [k](const MemorySample& sample) { return sample.bytes[k] > 0; };
    if ((role == MemoryRole::kHeld || is_of_files) && std::ranges::any_of(samples, is_something))
      lines.push_back(
          {kMemoryKinds[k].name, memory_role_name(role), [k](const MemorySample& sample) { return sample.bytes[k]; }});
  }
  lines.push_back({"unaccounted", "held", unaccounted_bytes});
  return lines;
}

}  // namespace ferry
