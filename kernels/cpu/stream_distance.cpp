#include "kernels/cpu/stream_distance.h"

#include <cpuid.h>

namespace ferry {
namespace {

constexpr int kZen3And4 = 25;

ProcessorKind read_processor() {
  unsigned max_leaf = 0, ebx = 0, ecx = 0, edx = 0, signature = 0;
  if (__get_cpuid(0, &max_leaf, &ebx, &ecx, &edx) == 0) return {};
  const bool is_amd = ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx;
  if (__get_cpuid(1, &signature, &ebx, &ecx, &edx) == 0) return {};
  const unsigned base = (signature >> 8) & 0xF, extended = (signature >> 20) & 0xFF;
  return {.is_amd = is_amd, .family = static_cast<int>(base == 0xF ? base + extended : base)};
}

}  // namespace

const ProcessorKind& this_processor() {
  static const ProcessorKind processor = read_processor();
  return processor;
}

int64_t stream_distance(const WeightType& type, const ProcessorKind& processor) {
  constexpr int64_t kPage = 4096, kNear = 512;
  const bool wants_near = type.format == WeightFormat::kInt4 && processor.is_amd && processor.family == kZen3And4;
  return wants_near ? kNear : kPage;
}

}  // namespace ferry
