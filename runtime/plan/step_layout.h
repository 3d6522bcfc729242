#pragma once

#include <bit>

#include "runtime/plan/step_model.h"

namespace ferry {

inline double real(int64_t value) { return static_cast<double>(value); }

/// What all steps of a configuration have in common.
struct StepModel::Layout {
  Layout(const PlanModel& model, std::span<const PlanHost> hosts, const PlanCase& c, const Holders& expert_holders);

  bool is_live(std::size_t worker) const { return (live >> worker & 1) != 0; }
  int64_t num_live() const { return std::popcount(live & (~uint64_t{0} >> (kMaxWorkers - std::ssize(busy)))); }

  PlanSites sites;
  const Holders& holders;
  SharedView coordinator;           // its costs
  std::vector<SharedView> workers;  // [workers] theirs
  std::vector<double> fewer;        // [workers] the host's cores over the threads of one
  ExpertChooser chooser;
  uint64_t live = ~uint64_t{0};  // workers that answer
  int64_t micro_batch_rows;      // of half a step from which it is halved; 0: never
  bool adds_on_workers;          // they send a row a token back
  // Space for a layer.
  std::vector<double> busy, worker_rows;    // [workers]
  std::vector<double> host_sum, host_most;  // [hosts]
  std::vector<bool> is_seen;                // [hosts]
  std::vector<int32_t> orphans;             // experts that nobody holds
};

}  // namespace ferry
