#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "comm/faulty/faults.h"
#include "moe/combine_mode.h"
#include "runtime/fault/fault_plan.h"
#include "runtime/options/placement_options.h"

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

/// A worker that comes while the job runs.
struct SimNewcomer {
  Duration comes_at{0};
  std::optional<Duration> leaves_at;  // asks to, from then on
  bool lingers = false;               // comes again when its coordinator has gone
};

/// What a job whose rows travel over links has beside.
struct SimLinks {
  bool takes_workers = true;
  std::vector<SimNewcomer> newcomers;  // the processes after those that are started together
  RedundancyChoice redundancy;
  int64_t rebalance_steps = 0;
  Duration open_until{0};     // the coordinator stays so long, with or without requests
  int64_t reading_turns = 1;  // of a worker, in which it may do what it reads experts for: on average it takes so many
};

/// Everything that a seed decides.
struct SimPlan {
  uint64_t seed = 0;
  int num_workers = 1;  // that start with the coordinator: 1 ‥ kMaxWorkers, over links 0 ‥ kMaxLinkWorkers
  CombineMode combine = CombineMode::kExact;
  bool uses_micro_batches = false;
  Duration peer_timeout{0};
  std::vector<SimRequest> requests;     // in order of arrival
  std::optional<Duration> snapshot_at;  // the last steps of all ranks are asked for
  Faults faults;
  std::optional<SimLinks> links;  // absent: rows travel over a group

  // On top of the seed.
  std::vector<PlannedFault> planned_faults;
  double drop_rate = 0;  // of every message

  /// With the coordinator.
  int num_ranks() const { return num_workers + 1 + (links ? static_cast<int>(links->newcomers.size()) : 0); }
};

inline constexpr int kMaxWorkers = 3;
inline constexpr int kMaxLinkWorkers = 4;
inline constexpr int kMaxNewcomers = 2;
inline constexpr int kMaxRanks = 1 + kMaxLinkWorkers + kMaxNewcomers;

SimPlan draw_plan(uint64_t seed);
SimPlan draw_link_plan(uint64_t seed);
/// The same job without a fault, whose requests are all prompts one after another, at full length.
SimPlan calm_plan(CombineMode combine, int num_workers);

}  // namespace ferry::sim
