#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/plan/placed_steps.h"
#include "runtime/plan/plan_types.h"
#include "runtime/plan/sites.h"

// How long steps take, from costs that were measured and routing that was recorded. Pure functions: no clock, no file.
//
//   one process    coordinator(rows) + sum over layers of experts(layer)
//   with workers   own(rows) + head + sum over layers of max(shared(rows) / layers, exchange + most of a host's workers)
//
// Workers of one host share its memory and its cores, so they take as long together as one after the other with all cores, or
// as the fullest with the threads that it has, whichever is longer. Where all ranks are on one host, costs are those of ranks
// that share it, as many as are planned; its shared expert is hidden as far as it was when that was measured. Prompts of which
// both halves have PlanCase::micro_batch_rows rows go in halves where workers have hosts of their own: the coordinator's work
// on one hides behind the workers' on the other, or the other way round.
//
// Several coordinators have equal shares of the sequences and wait for each other at the workers (shared_workers.h). Those of
// one host share its cores.
//
// When the fullest worker dies, other holders of its experts compute them in the same step. What nobody else holds the
// coordinator reads when it is first asked for, and computes, until the survivors have read what the worker held; from then on
// they share it by cost.

namespace ferry {

/// What an expert costs ExpertChooser and spread: a straight line through a curve at 1 and 16 rows.
ExpertCost chooser_cost(const Curve& expert);

class StepModel {
 public:
  /// All of these outlive it. `routing` is of the model's shape.
  StepModel(const PlanModel& model, std::span<const PlanHost> hosts, const RoutingRows& routing);

  /// Bounds: workers up to kMaxWorkers and the experts, coordinators >= 1, batch >= coordinators; throws
  /// Error{kInvalidArgument} otherwise, and as make_sites() does.
  PlanResult plan(const PlanCase& asked);
  /// Parts of it: a step of decode, a prompt.
  StepTimes decode(const PlanCase& asked);
  StepTimes prefill(const PlanCase& asked);

  /// Machines of all kinds, for coordinators and workers together.
  int64_t num_hosts() const;
  int64_t num_experts() const { return model_.num_experts; }

 private:
  using Holders = std::vector<std::vector<uint64_t>>;  // [layers][num_experts]: bit w for worker w
  struct Rows {                                        // of a step
    double rows = 0;
    double keys = 0;  // that each row looks back on
    double logits = 0;
    RoutingPhase phase = RoutingPhase::kDecode;
  };
  struct Placed {
    Holders holders;
    std::vector<double> held;  // [workers] experts of all layers
    int64_t fullest = 0;       // worker
    double lost = 0;           // experts of all layers that only the fullest holds
  };
  /// Where one step goes.
  struct Step {
    StepTimes times;
    double service_s = 0;  // of the workers, whatever is hidden behind it
    // Of workers that are lost: experts, as layer * num_experts + expert, that are computed on the coordinator.
    std::vector<int64_t> orphans;
  };
  struct Exchange {
    double experts = 0, transport = 0, imbalance = 0;
    double here = 0;  // on the coordinator, since nobody holds it
  };
  struct Layout;  // what all steps of a configuration have in common

  const AskedRows& decode_rows(int64_t batch);
  const AskedRows& prefill_rows(int64_t position, int64_t count);
  StepTimes one_process(const AskedRows& asked, int64_t step, const Rows& rows) const;
  Step with_workers(Layout& layout, const AskedRows& asked, int64_t step, const Rows& rows) const;
  Exchange exchange(Layout& layout, std::span<const uint64_t> holders, std::span<const int32_t> asked, const Rows& rows) const;
  static double transport_s(const Layout& layout, double num_bytes, RoutingPhase phase);
  static Rows rows_of_decode(const PlanCase& c, int64_t batch);
  /// The mean of decode steps of `batch` sequences of one coordinator, as if it were alone; `layout` as with_workers() has it.
  Step mean_step(const PlanCase& c, Layout& layout, int64_t batch);
  StepTimes decode_times(const PlanCase& c, const Holders& holders, PlanResult* result);
  StepTimes share_workers(const PlanCase& c, Layout& layout, const Step& one, PlanResult* result);
  StepTimes prefill_times(const PlanCase& c, const Holders& holders);
  /// By which experts are placed.
  ExpertLoads known_loads(const PlanCase& c);
  Placed placed(const PlanCase& c);
  void fill_memory(const PlanCase& c, PlanResult& result) const;
  void fill_death(const PlanCase& c, const Placed& placement, PlanResult& result);
  void live_through_death(const PlanCase& c, Layout& layout, double queue_s, DeathEstimate& death);

  const PlanModel& model_;
  std::span<const PlanHost> hosts_;
  const RoutingRows& routing_;
  std::map<int64_t, AskedRows> decode_;                       // by batch
  std::map<std::pair<int64_t, int64_t>, AskedRows> prefill_;  // by position and count
};

/// Indices of the best ones: of those that fit, the most tokens/s of decode at their depth and batch. Each has one, if any
/// fits.
std::vector<std::size_t> best_of(std::span<const PlanResult> results);

}  // namespace ferry
