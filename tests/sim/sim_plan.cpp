#include "tests/sim/sim_plan.h"

#include <algorithm>
#include <utility>

#include "tests/sim/workload.h"

namespace ferry::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kShortestLinkJob{1};  // workers have begun to serve by then
constexpr int64_t kMessages = 700;      // of a long run; faults happen up to here

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

/// 0, an eighth, or two of each expert; only where there are workers for them.
RedundancyChoice draw_redundancy(SeededRandom& random, int num_workers) {
  const int64_t kind = num_workers < 2 ? 0 : random.below(3);
  return {.share = kind == 1 ? 0.125 : 0, .extra_slots = 0, .is_twice = kind == 2};
}

SimNewcomer draw_newcomer(SeededRandom& random) {
  SimNewcomer newcomer{
      .comes_at = random.one_in(3) ? Duration(seconds(random.between(0, 30))) : Duration(milliseconds(random.between(0, 200))),
      .leaves_at = std::nullopt,
      .lingers = random.one_in(3)};
  const Duration stays =
      random.one_in(2) ? Duration(seconds(random.between(1, 60))) : Duration(milliseconds(random.between(0, 300)));
  if (random.one_in(2)) newcomer.leaves_at = newcomer.comes_at + stays;
  return newcomer;
}

}  // namespace

SimPlan draw_link_plan(uint64_t seed) {
  SeededRandom random(seed ^ 0x6c696e6b73U);
  SimLinks links;
  for (int64_t left = random.below(kMaxNewcomers + 1); left > 0; --left) links.newcomers.push_back(draw_newcomer(random));
  links.takes_workers = !links.newcomers.empty() || random.one_in(2);
  SimPlan plan{.seed = seed,
               .num_workers = static_cast<int>(random.between(links.newcomers.empty() ? 1 : 0, kMaxLinkWorkers)),
               .combine = random.one_in(8) ? CombineMode::kFast : CombineMode::kExact,
               .uses_micro_batches = random.one_in(2),
               .peer_timeout = seconds(random.between(1, 30))};
  links.redundancy = draw_redundancy(random, plan.num_workers);
  links.rebalance_steps = random.one_in(4) ? random.between(2, 12) : 0;
  links.reading_turns = int64_t{1} << random.below(10);
  Duration arrival{0};
  for (int64_t left = random.between(1, 8); left > 0; --left) {
    arrival += draw_pause(random);
    plan.requests.push_back(draw_request(random, arrival));
  }
  links.open_until = std::max<Duration>(arrival + (random.one_in(2) ? Duration(seconds(random.between(0, 90))) : Duration(0)),
                                        kShortestLinkJob);
  if (random.one_in(5)) plan.snapshot_at = milliseconds(random.between(0, 50));
  plan.faults = draw_link_faults(random, kMessages, plan.peer_timeout);
  const int64_t num_started = plan.num_workers + 1;
  if (!random.one_in(4)) {  // not while ranks start
    for (Fault& fault : plan.faults.faults) fault.message += 2 * num_started * num_started;
  }
  plan.links = std::move(links);
  return plan;
}

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
