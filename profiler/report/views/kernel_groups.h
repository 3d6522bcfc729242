#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/report/timeline/timeline.h"

namespace ferry {

/// Steps that do the same kind of work.
struct KernelGroup {
  std::string name;            // "prefill", "prefill 64", "decode ×4", "draft-verify", "draft-verify ×4"
  std::vector<int32_t> steps;  // indices into timeline.steps, ascending
  int32_t typical = 0;         // of these that whose length is the median, of an even number the shorter one in the middle
};

/// Prefill, decode, and steps that try drafts; of a benchmark each size by itself and without its warm-ups. Mixed steps are
/// none of these. Only groups that have steps, as step_groups() orders them, those with drafts behind those without.
std::vector<KernelGroup> find_kernel_groups(const Timeline& timeline);

}  // namespace ferry
