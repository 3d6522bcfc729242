#pragma once

#include <optional>
#include <span>
#include <vector>

#include "moe/routing/routing_trace.h"
#include "profiler/report/timeline/report_input.h"
#include "runtime/actions/cost_curves.h"
#include "runtime/actions/replayed_steps.h"
#include "runtime/plan/plan_types.h"

// What a plan counts with, taken from a capture: the inverse of planning. Steps of few sizes were captured where a plan
// measures many, so what they do not tell is taken from steps of other kinds.

namespace ferry {

/// Of a captured run.
struct ReplayCosts {
  PlanModel model;
  std::vector<PlanHost> hosts;            // one that all ranks share, or the coordinator's and one a worker
  bool is_together = false;               // workers have not cores enough for all of them at once
  std::vector<int32_t> worker_ranks;      // by worker
  std::vector<LayerPlacement> placement;  // [num_expert_layers] by worker, as it was
  WeightsRoof own_roof;                   // of the coordinator's own work
  PlanCase captured;                      // without sizes; `given` is not set
  std::vector<double> step_imbalance;  // [steps] seconds: how much sooner, layer by layer, the last worker would be done, were
                                       // work even and each began when it did
};

/// Whether ranks of one host take cores from each other: they may run on the same ones, and the kernel counted waits.
bool share_cores(const ReportInput& input);

/// Nothing where steps or their operators were not recorded, or there are no experts.
/// `shape` is that of the routing that the costs are to be used with.
std::optional<ReplayCosts> find_replay_costs(const ReportInput& input, std::span<const ReplayedStep> steps,
                                             std::span<const ExpertCall> calls, const RoutingShape& shape);

}  // namespace ferry
