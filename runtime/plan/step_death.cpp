#include <algorithm>
#include <vector>

#include "runtime/plan/step_layout.h"

// What a worker's death costs: the steps until the others hold what it held.

namespace ferry {
namespace {

constexpr double kLeastShare = 0.1;  // of a core, that a thread of nice 10 gets where all are busy

/// How fast the survivors read experts beside their work, all hosts together: a thread of low priority each.
double adoption_bytes_per_s(const PlanSites& sites, int64_t dead, double worker_use) {
  const double idle = sites.is_together ? 0 : 1 - worker_use;
  double rate = 0;
  for (int64_t w = 0; w < std::ssize(sites.worker_host); ++w) {
    if (w != dead) rate += sites.host_of(static_cast<std::size_t>(w)).load_bytes_per_s * std::max(kLeastShare, idle);
  }
  return rate;
}

/// How fast the coordinator reads experts that a step waits for, on all threads; memory carries each byte twice.
double orphan_bytes_per_s(const PlanHost& home) {
  return std::min(real(home.cores) * home.load_bytes_per_s, home.read_bytes_per_s / 2);
}

}  // namespace

void StepModel::fill_death(const PlanCase& c, const Placed& placement, PlanResult& result) {
  DeathEstimate& death = result.death;
  death.lost_share = placement.lost / real(model_.num_expert_layers * model_.num_experts);
  Layout layout(model_, hosts_, c, placement.holders);
  layout.live = ~(uint64_t{1} << placement.fullest);
  if (c.workers > 1) {
    const double rate = adoption_bytes_per_s(layout.sites, placement.fullest, result.worker_use);
    const double held_bytes = placement.held[static_cast<std::size_t>(placement.fullest)] * model_.expert_bytes;
    death.degraded_s = rate > 0 ? held_bytes / rate : 0;
    PlanCase after = c;
    after.workers = c.workers - 1;
    after.is_spread = true;
    after.given = nullptr;
    death.adopted_tokens_per_s = real(c.batch) / decode_times(after, placed(after).holders, nullptr).sum();
  }
  live_through_death(c, layout, result.decode.queue, death);
}

/// Steps of one coordinator, which waits for the others as long as it did before; all do as it does.
void StepModel::live_through_death(const PlanCase& c, Layout& layout, double queue_s, DeathEstimate& death) {
  constexpr int kMostSteps = 512;  // then all that is often asked for has been read
  const int64_t batch = (c.batch + c.coordinators - 1) / c.coordinators;
  const AskedRows& asked = decode_rows(batch);
  const double read_s = model_.expert_bytes / orphan_bytes_per_s(layout.sites.home());
  std::vector<bool> is_read(static_cast<std::size_t>(asked.num_layers * asked.num_experts), false);
  std::vector<Step> steps;
  for (int64_t t = 1; t < asked.num_steps; t += 2) steps.push_back(with_workers(layout, asked, t, rows_of_decode(c, batch)));
  double elapsed = 0;
  int num_steps = 0;
  while (num_steps < kMostSteps && (num_steps == 0 || c.workers == 1 || elapsed < death.degraded_s)) {
    const Step& step = steps[static_cast<std::size_t>(num_steps) % steps.size()];
    double taken = step.times.sum() + queue_s;
    for (const int64_t expert : step.orphans) {
      if (is_read[static_cast<std::size_t>(expert)]) continue;
      is_read[static_cast<std::size_t>(expert)] = true;
      taken += read_s;
    }
    if (num_steps++ == 0) death.first_step_s = taken;
    elapsed += taken;
  }
  double mean = 0;  // of a step for which nothing has to be read
  for (const Step& step : steps) mean += (step.times.sum() + queue_s) / real(std::ssize(steps));
  const double rest = c.workers == 1 ? 0 : std::max(0.0, death.degraded_s - elapsed);
  const double all_steps = num_steps + rest / mean;
  death.degraded_tokens_per_s = c.workers == 1 ? real(c.batch) / mean : real(c.batch) * all_steps / (elapsed + rest);
}

}  // namespace ferry
