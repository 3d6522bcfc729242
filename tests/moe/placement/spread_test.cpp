#include "moe/placement/spread.h"

#include <numeric>

#include "runtime/base/error.h"
#include "tests/moe/placement/placement_cases.h"
#include "tests/support/draws.h"

namespace ferry {
namespace {

Redundancy extra(int64_t slots) { return {.extra_slots = slots}; }

LayerPlacement slices(int64_t num_experts, int64_t num_workers) {
  LayerPlacement placement(static_cast<std::size_t>(num_workers));
  for (int64_t e = 0; e < num_experts; ++e) {
    placement[static_cast<std::size_t>(e * num_workers / num_experts)].push_back({static_cast<int32_t>(e)});
  }
  return placement;
}

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// The largest share of an expert's cost in a placement.
double largest_share(const std::vector<double>& cost, const LayerPlacement& placement) {
  const std::vector<int32_t> copies = copies_in(placement, static_cast<int64_t>(cost.size()));
  double most = 0;
  for (std::size_t e = 0; e < cost.size(); ++e) most = std::max(most, cost[e] / copies[e]);
  return most;
}

/// The most copies that workers can hold: every expert on each, or their slots.
int64_t most_copies(int64_t num_experts, const std::vector<WorkerCapacity>& workers) {
  int64_t most = 0;
  for (const WorkerCapacity& worker : workers) most += std::min<int64_t>(worker.slots, num_experts);
  return most;
}

TEST(Spread, DealsTheLongestFirst) {
  const std::vector<double> cost = {1, 7, 3, 5, 2, 6};
  // 7 | 6, then 5 to the second, 3 to the first, 2 to the first, 1 to the second.
  const LayerPlacement placement = spread(cost, equal_workers(2, 3), extra(0));
  EXPECT_EQ(placement, (LayerPlacement{{{1}, {2}, {4}}, {{0}, {3}, {5}}}));
  EXPECT_EQ(placement_cost(placement, cost, equal_workers(2, 3)), 12);
}

TEST(Spread, ExtraSlotsGoToTheLargestCostPerCopy) {
  EXPECT_EQ(count_copies(std::vector<double>{8, 1, 5, 1}, equal_workers(3, 4), extra(3)), (std::vector<int32_t>{3, 1, 2, 1}));
  // No more than one a worker; what nobody can use stays empty.
  EXPECT_EQ(count_copies(std::vector<double>{8, 1}, equal_workers(2, 4), extra(5)), (std::vector<int32_t>{2, 2}));
  // Among equals the lower one; with no costs at all, evenly.
  EXPECT_EQ(count_copies(std::vector<double>{1, 1, 1}, equal_workers(3, 4), extra(2)), (std::vector<int32_t>{2, 2, 1}));
  EXPECT_EQ(count_copies(std::vector<double>{0, 0, 0}, equal_workers(3, 4), extra(4)), (std::vector<int32_t>{3, 2, 2}));
}

TEST(Spread, CopiesThatAreThereCountALittleMore) {
  const std::vector<int32_t> held = {1, 2};
  EXPECT_EQ(count_copies(std::vector<double>{1.04, 1}, equal_workers(3, 3), extra(1), held), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(count_copies(std::vector<double>{1.06, 1}, equal_workers(3, 3), extra(1), held), (std::vector<int32_t>{2, 1}));
}

TEST(Spread, RoomsThatDifferAreUsedToTheLastSlot) {
  // 3 experts twice on 1 + 2 + 3 slots: the first worker's one slot decides where all others are.
  const std::vector<WorkerCapacity> workers = {{.slots = 1}, {.slots = 2}, {.slots = 3}};
  const LayerPlacement placement = spread(std::vector<double>{3, 2, 1}, workers, kTwice);
  expect_sound(placement, 3, workers);
  EXPECT_EQ(num_placed(placement), 6);
}

TEST(Spread, AFasterWorkerGetsMore) {
  const std::vector<WorkerCapacity> workers = {{.slots = 90, .speed = 1}, {.slots = 90, .speed = 2}};
  const std::vector<double> cost(90, 1.0);
  const LayerPlacement placement = spread(cost, workers, extra(0));
  EXPECT_EQ(placement[0].size(), 30U);
  EXPECT_EQ(placement[1].size(), 60U);
}

TEST(Spread, TwiceSpreadsTheOtherCopiesOverAllWorkers) {
  Draws draws(5);
  const int64_t num_workers = 8;
  const LayerPlacement placement = spread(draws.costs(256), equal_workers(num_workers, 64), kTwice);
  EXPECT_EQ(copies_in(placement, 256), std::vector<int32_t>(256, 2));
  // After any death each survivor has its part of the orphans: 64 over 7.
  for (std::size_t dead = 0; dead < placement.size(); ++dead) {
    for (std::size_t w = 0; w < placement.size(); ++w) {
      if (w == dead) continue;
      const int64_t shared = std::count_if(placement[w].begin(), placement[w].end(), [&](LogicalExpertId e) {
        return std::find(placement[dead].begin(), placement[dead].end(), e) != placement[dead].end();
      });
      EXPECT_TRUE(shared >= 7 && shared <= 12) << shared << " of " << dead << " on " << w;
    }
  }
}

/// Any number of experts, extra slots and workers, any room.
TEST(Spread, AnyDrawGivesASoundPlacement) {
  Draws draws(1);
  for (int draw = 0; draw < test::draws(4000, 1500); ++draw) {
    SCOPED_TRACE(draw);
    const int64_t num_experts = draws.between(1, draw % 50 == 0 ? 300 : 40),
                  num_workers = draws.between(1, draw % 10 == 0 ? 64 : 9);
    const std::vector<double> cost = draws.costs(num_experts);
    const std::vector<WorkerCapacity> workers = draws.workers(num_workers, num_experts + draws.below(num_experts));
    int64_t slots = 0;
    for (const WorkerCapacity& worker : workers) slots += worker.slots;
    // Room is no guarantee of places: several slots of a worker can take one expert once.
    if (most_copies(num_experts, workers) < num_experts) continue;
    const int64_t num_extra = draws.below(slots - num_experts + 1);
    const LayerPlacement placement = spread(cost, workers, extra(num_extra));
    expect_sound(placement, num_experts, workers);
    EXPECT_EQ(num_placed(placement), std::min(num_experts + num_extra, most_copies(num_experts, workers)));
    EXPECT_EQ(placement, spread(cost, workers, extra(num_extra)));
    if (::testing::Test::HasFailure()) return;
  }
}

/// With equal speeds and room to spare an expert's copies go to the least full workers, so that the fullest and the least full
/// are never further apart than the largest share: the cost is at most the mean and that. Where slots bind, a worker gets
/// something although full ones have less only from some expert on; all full ones have at least as much as it can get from then
/// on, so that is at most one mean more.
TEST(Spread, CostIsBoundedByTheMeanAndTheLargestExpert) {
  Draws draws(2);
  int num_better = 0, num_worse = 0;
  const int num_draws = test::draws(1000, 400);
  for (int draw = 0; draw < num_draws; ++draw) {
    SCOPED_TRACE(draw);
    const int64_t num_workers = draws.between(1, 12), num_experts = num_workers * draws.between(1, 12);
    const std::vector<double> cost = draws.costs(num_experts);
    const int64_t num_extra = draws.below(num_experts * (num_workers - 1) / 2 + 1);
    const std::vector<WorkerCapacity> roomy = equal_workers(num_workers, static_cast<int32_t>(num_experts));
    const double mean = sum(cost) / static_cast<double>(num_workers);
    const LayerPlacement free = spread(cost, roomy, extra(num_extra));
    EXPECT_LE(placement_cost(free, cost, roomy), (mean + largest_share(cost, free)) * (1 + 1e-12));

    const std::vector<WorkerCapacity> tight = equal_workers(num_workers, static_cast<int32_t>(num_experts / num_workers));
    const LayerPlacement full = spread(cost, tight, extra(0));
    EXPECT_LE(placement_cost(full, cost, tight), (2 * mean + largest_share(cost, full)) * (1 + 1e-12));
    const double contiguous = placement_cost(slices(num_experts, num_workers), cost, tight);
    num_better += placement_cost(full, cost, tight) < contiguous;
    num_worse += placement_cost(full, cost, tight) > contiguous * (1 + 1e-12);
  }
  EXPECT_GE(num_better, num_draws * 7 / 10);
  EXPECT_LE(num_worse, num_draws / 50);  // three slots a worker or less, where luck can beat the rule
}

/// The least cost of any placement with one copy each.
double best_cost(const std::vector<double>& cost, const std::vector<WorkerCapacity>& workers) {
  double best = INFINITY;
  int64_t combinations = 1;
  for (std::size_t e = 0; e < cost.size(); ++e) combinations *= static_cast<int64_t>(workers.size());
  for (int64_t c = 0; c < combinations; ++c) {
    LayerPlacement placement(workers.size());
    int64_t rest = c;
    for (std::size_t e = 0; e < cost.size(); ++e, rest /= static_cast<int64_t>(workers.size())) {
      placement[static_cast<std::size_t>(rest % static_cast<int64_t>(workers.size()))].push_back({static_cast<int32_t>(e)});
    }
    bool fits = true;
    for (std::size_t w = 0; w < workers.size(); ++w)
      fits = fits && static_cast<int64_t>(placement[w].size()) <= workers[w].slots;
    if (fits) best = std::min(best, placement_cost(placement, cost, workers));
  }
  return best;
}

/// 4/3 - 1/(3 W) of the best with equal speeds and room, by Graham; 2 with any speeds, by Gonzalez, Ibarra and Sahni (1977); 3
/// with equal speeds and slots that bind, by the bound above.
TEST(Spread, IsNearTheBestOfAllPlacements) {
  Draws draws(3);
  for (int draw = 0; draw < 300; ++draw) {
    SCOPED_TRACE(draw);
    const int64_t num_workers = draws.between(1, 3), num_experts = draws.between(1, 6);
    const std::vector<double> cost = draws.costs(num_experts);
    std::vector<WorkerCapacity> workers = equal_workers(num_workers, static_cast<int32_t>(num_experts));
    const auto ratio = [&] {
      const double best = best_cost(cost, workers);
      return best == 0 ? 1 : placement_cost(spread(cost, workers, extra(0)), cost, workers) / best;
    };
    EXPECT_LE(ratio(), 4.0 / 3 - 1 / (3.0 * static_cast<double>(num_workers)) + 1e-12);
    for (WorkerCapacity& worker : workers) worker.slots = static_cast<int32_t>((num_experts + num_workers - 1) / num_workers);
    EXPECT_LE(ratio(), 3);
    for (WorkerCapacity& worker : workers) worker = {.slots = static_cast<int32_t>(num_experts), .speed = 0.25 + draws.unit()};
    EXPECT_LE(ratio(), 2);
  }
}

void expect_spread_error(const std::vector<double>& cost, const std::vector<WorkerCapacity>& workers,
                         const Redundancy& redundancy, const std::string& message) {
  try {
    spread(cost, workers, redundancy);
    FAIL() << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.what(), message);
  }
}

TEST(Spread, RefusesWhatHasNoRoom) {
  const std::string allowed = "; allowed: as many as have room with no two copies of one expert on the same worker";
  expect_spread_error({1, 1, 1}, equal_workers(1, 2), extra(0),
                      "spread: 3 copies of 3 experts on 1 workers with 2 slots in all" + allowed);
  expect_spread_error({1, 1}, equal_workers(2, 2), extra(3),
                      "spread: 5 copies of 2 experts on 2 workers with 4 slots in all" + allowed);
  expect_spread_error({1, 1}, {{.slots = 8}, {.slots = 0}}, kTwice,
                      "spread: 4 copies of 2 experts on 1 workers with 8 slots in all" + allowed);
  expect_spread_error({1}, {}, extra(0), "spread: 0 workers; allowed: 1 to 64");
  expect_spread_error({1}, equal_workers(65, 1), extra(0), "spread: 65 workers; allowed: 1 to 64");
  expect_spread_error({1}, equal_workers(1, 1), extra(-1), "spread: -1 extra slots; allowed: 0 or more");
  expect_spread_error({1, -2}, equal_workers(1, 2), extra(0), "spread: expert 1 has cost -2.000000; allowed: 0 or more");
  expect_spread_error({1}, {{.slots = 1, .speed = 0}}, extra(0),
                      "spread: worker 0 has 1 slots and speed 0.000000; allowed: 0 slots or more, a speed above 0");
}

}  // namespace
}  // namespace ferry
