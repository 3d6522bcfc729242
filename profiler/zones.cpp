#include "profiler/zones.h"

namespace ferry {

const char* part_name(Part part) {
  switch (part) {
    case Part::kOther: return "other";
    case Part::kDeltaNet: return "deltanet";
    case Part::kAttention: return "attention";
    case Part::kShortConv: return "short_conv";
    case Part::kRouter: return "router";
    case Part::kDispatch: return "dispatch";
    case Part::kExperts: return "experts";
    case Part::kCombine: return "combine";
    case Part::kSharedExpert: return "shared_expert";
    case Part::kDenseFfn: return "dense_ffn";
    case Part::kNorm: return "norm";
    case Part::kHead: return "head";
    case Part::kSample: return "sample";
    case Part::kVision: return "vision";
  }
  return "";
}

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kPrefill: return "prefill";
    case Phase::kDecode: return "decode";
    case Phase::kMixed: return "mixed";
  }
  return "";
}

std::string work_name(Phase phase, int64_t size) {
  return phase_name(phase) + std::string(phase == Phase::kPrefill ? " " : " ×") + std::to_string(size);
}

}  // namespace ferry
