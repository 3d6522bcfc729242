#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/plan/placed_steps.h"
#include "runtime/plan/plan_types.h"

// How long steps take, from costs that were measured and routing that was recorded. Pure functions: no clock, no file.
//
//   one process    coordinator(rows) + sum over layers of experts(layer)
//   with workers   own(rows) + sum over layers of max(shared(rows) / layers, transport + most of a host's workers) + head
//
// A host's workers share its memory and its cores, so they take as long together as one after the other with all cores, or as
// the fullest with the threads that it has, whichever is longer. Where workers share the coordinator's host, its shared expert
// is not hidden behind them. Prompts of which both halves have kPlanMicroBatchRows rows go in halves where workers have hosts
// of their own: the coordinator's work on one hides behind the workers' on the other, or the other way round.

namespace ferry {

inline constexpr int64_t kPlanMicroBatchRows = 256;  // CorePolicy's

/// Which of the hosts, counted one by one, workers are on: the coordinators take the first ones, the workers the others in
/// turn, or the same where there is but one.
struct PlanSites {
  std::vector<const PlanHost*> hosts;  // one by one
  std::vector<int64_t> worker_host;    // [workers] index into hosts
  bool is_together = false;            // all ranks are on one host
};
PlanSites make_sites(std::span<const PlanHost> hosts, int64_t coordinators, int64_t workers);

/// What an expert costs ExpertChooser and spread: a straight line through a curve at 1 and 16 rows.
ExpertCost chooser_cost(const Curve& expert);

class StepModel {
 public:
  /// All of these outlive it. `routing` is of the model's shape.
  StepModel(const PlanModel& model, std::span<const PlanHost> hosts, const RoutingRows& routing);

  /// Bounds: workers up to kMaxWorkers and the experts, coordinators >= 1, batch >= coordinators; throws
  /// Error{kInvalidArgument} otherwise.
  PlanResult plan(const PlanCase& asked);

 private:
  struct Layer {
    std::vector<uint64_t> holders;  // [num_experts]
  };
  struct Rows {  // of a step
    double rows = 0;
    double keys = 0;  // that each row looks back on
    double logits = 0;
    RoutingPhase phase = RoutingPhase::kDecode;
  };
  struct Exchange {
    double experts = 0, transport = 0, imbalance = 0;
  };

  const AskedRows& decode_rows(int64_t batch);
  const AskedRows& prefill_rows(int64_t position, int64_t count);
  StepTimes one_process(const AskedRows& asked, int64_t step, const Rows& rows) const;
  StepTimes with_workers(const PlanCase& c, const PlanSites& sites, std::span<const Layer> layers, const AskedRows& asked,
                         int64_t step, const Rows& rows) const;
  Exchange exchange(const PlanSites& sites, const Layer& layer, std::span<const int32_t> asked, double num_rows,
                    ExpertChooser& chooser) const;
  StepTimes decode_times(const PlanCase& c, std::span<const Layer> layers);
  StepTimes prefill_times(const PlanCase& c, std::span<const Layer> layers);
  std::vector<Layer> placed(const PlanCase& c, PlanResult* result);
  void fill_memory(const PlanCase& c, PlanResult& result) const;
  void fill_death(const PlanCase& c, PlanResult& result);

  const PlanModel& model_;
  std::span<const PlanHost> hosts_;
  const RoutingRows& routing_;
  std::map<int64_t, AskedRows> decode_;                       // by batch
  std::map<std::pair<int64_t, int64_t>, AskedRows> prefill_;  // by position and count
};

/// [result] the best: of those that fit, the most tokens/s of decode at their batch; -1 if none fits. Each batch has one.
std::vector<std::size_t> best_of(std::span<const PlanResult> results);

}  // namespace ferry
