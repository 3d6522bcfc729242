#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "comm/faulty/faults.h"
#include "moe/combine_mode.h"

namespace ferry::sim {

using Duration = std::chrono::nanoseconds;

/// A request as its client makes it; times since the run's start.
struct SimRequest {
  Duration arrival{0};
  int prompt_idx = 0;      // of Workload::prompts
  int32_t max_tokens = 1;  // 1 ‥ Workload::kMaxTokens
  std::optional<Duration> abort_at;
  std::optional<Duration> deadline;
};

/// Everything that a seed decides.
struct SimPlan {
  uint64_t seed = 0;
  int num_workers = 1;  // 1 ‥ kMaxWorkers
  CombineMode combine = CombineMode::kExact;
  bool uses_micro_batches = false;
  Duration peer_timeout{0};
  std::vector<SimRequest> requests;     // in order of arrival
  std::optional<Duration> snapshot_at;  // the last steps of all ranks are asked for
  Faults faults;
};

inline constexpr int kMaxWorkers = 3;

SimPlan draw_plan(uint64_t seed);
/// The same job without a fault, whose requests are all prompts one after another, at full length.
SimPlan calm_plan(CombineMode combine, int num_workers);

}  // namespace ferry::sim
