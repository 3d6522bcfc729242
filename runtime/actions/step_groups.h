#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/actions/replayed_steps.h"

namespace ferry {

/// Steps of one kind, by whose speed people know a run.
struct StepGroup {
  std::string metric;  // "decode ×4 tokens/s", "prefill tokens/s"
  bool is_decode = true;
  std::vector<std::size_t> steps;  // indices into the replayed steps
  double seconds = 0;              // of all of them
  double tokens = 0;               // that they brought: all rows but the drafts that were wrong
  double noise = 0;                // by which the mean may be off, as a share: the standard error of twenty parts

  double tokens_per_s() const { return seconds > 0 ? tokens / seconds : 0; }
};

/// Those that decode or compute prompts and nothing else, in measured sections by section, else by phase; those with at least
/// five steps, the one that took longest first. Steps of a warm-up are in none.
std::vector<StepGroup> find_step_groups(const ReportInput& input, std::span<const ReplayedStep> steps);

}  // namespace ferry
