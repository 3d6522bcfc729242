#include "tests/sim/sim_plan.h"

#include "tests/sim/workload.h"

namespace ferry::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kMessages = 700;  // of a long run; faults happen up to here

SimRequest draw_request(SeededRandom& random, Duration arrival) {
  SimRequest request{.arrival = arrival,
                     .prompt_idx = static_cast<int>(random.below(Workload::kNumPrompts)),
                     .max_tokens = static_cast<int32_t>(random.between(1, Workload::kMaxTokens))};
  const Duration later = milliseconds(random.between(0, 40));
  if (random.one_in(6)) request.abort_at = arrival + later;
  if (random.one_in(8)) request.deadline = arrival + later;
  return request;
}

/// Mostly close together; now and then so late that the job has idled meanwhile.
Duration draw_pause(SeededRandom& random) {
  return random.one_in(8) ? Duration(seconds(random.between(1, 40))) : Duration(milliseconds(random.between(0, 10)));
}

}  // namespace

SimPlan draw_plan(uint64_t seed) {
  SeededRandom random(seed);
  SimPlan plan{.seed = seed,
               .num_workers = static_cast<int>(random.between(1, kMaxWorkers)),
               .combine = random.one_in(4) ? CombineMode::kFast : CombineMode::kExact,
               .uses_micro_batches = random.one_in(2),
               .peer_timeout = seconds(random.between(1, 30))};
  Duration arrival{0};
  for (int64_t left = random.between(1, 5); left > 0; --left) {
    arrival += draw_pause(random);
    plan.requests.push_back(draw_request(random, arrival));
  }
  if (random.one_in(5)) plan.snapshot_at = milliseconds(random.between(0, 50));
  plan.faults = draw_faults(random, kMessages, plan.peer_timeout);
  return plan;
}

SimPlan calm_plan(CombineMode combine, int num_workers) {
  SimPlan plan{.seed = 0, .num_workers = num_workers, .combine = combine, .peer_timeout = seconds(30)};
  for (int i = 0; i < Workload::kNumPrompts; ++i) {
    plan.requests.push_back({.arrival = i * Duration(seconds(1)),
                             .prompt_idx = i,
                             .max_tokens = Workload::kMaxTokens,
                             .abort_at = std::nullopt,
                             .deadline = std::nullopt});
  }
  return plan;
}

}  // namespace ferry::sim
