#include "moe/placement/rebalance.h"

#include <numeric>

#include "runtime/base/error.h"
#include "tests/moe/placement/placement_cases.h"

namespace ferry {
namespace {

constexpr int64_t kNoLimit = INT64_MAX;

LayerPlacement lists(const std::vector<std::vector<int32_t>>& experts) {
  LayerPlacement placement(experts.size());
  for (std::size_t w = 0; w < experts.size(); ++w) {
    for (const int32_t e : experts[w]) placement[w].push_back({e});
  }
  return placement;
}

/// Costs that have drifted a little.
std::vector<double> drifted(const std::vector<double>& cost, Draws& draws, double by) {
  std::vector<double> now = cost;
  for (double& c : now) c *= 1 + by * (2 * draws.unit() - 1);
  return now;
}

TEST(Rebalance, OneExchangeLevelsTwoWorkersAndKeepsSlots) {
  const std::vector<double> cost = {8, 6, 1, 3};
  const LayerPlacement current = lists({{0, 1}, {2, 3}});
  // 14 | 4: both 8 for 3 and 6 for 1 make 9 | 9; the lower expert goes. The newcomers take the slots that came free.
  const LayerPlacement next = spread_near(cost, equal_workers(2, 2), {}, current, kNoLimit);
  EXPECT_EQ(next, lists({{3, 1}, {2, 0}}));
  EXPECT_EQ(count_loads(current, next), 2);
  EXPECT_EQ(spread_near(cost, equal_workers(2, 2), {}, current, 1), current);  // an exchange is two loads
}

TEST(Rebalance, LittleToWinMovesNothing) {
  const std::vector<std::vector<double>> cost = {{10, 10.4, 1, 1}};
  const std::vector<LayerPlacement> current = {lists({{0, 2}, {1, 3}})};
  const RebalanceLimits limits{.expert_bytes = 1, .budget_bytes = 100};
  EXPECT_TRUE(rebalance(cost, current, equal_workers(2, 3), {}, limits).empty());
}

TEST(Rebalance, LayersGoByGainAsLongAsTheBudgetLasts) {
  const std::vector<std::vector<double>> cost = {{3, 3, 1, 1}, {9, 9, 1, 1}, {5, 1, 5, 1}};
  const std::vector<LayerPlacement> current(3, lists({{0, 1}, {2, 3}}));
  const auto changed_layers = [&](int64_t budget) {
    std::vector<int64_t> layers;
    for (const LayerChange& change :
         rebalance(cost, current, equal_workers(2, 2), {}, {.expert_bytes = 10, .budget_bytes = budget})) {
      layers.push_back(change.layer);
      EXPECT_EQ(change.num_loads, 2);
      EXPECT_FALSE(change.is_forced);
      EXPECT_LT(change.cost_after, change.cost_before);
    }
    return layers;
  };
  EXPECT_EQ(changed_layers(100), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(changed_layers(39), (std::vector<int64_t>{1}));
  EXPECT_EQ(changed_layers(19), (std::vector<int64_t>{}));
}

TEST(Rebalance, OrphansOfADeadWorkerAreLoadedWhateverTheBudget) {
  const std::vector<std::vector<double>> cost = {{1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}};
  const std::vector<LayerPlacement> current(2, lists({{0, 1}, {2, 3}, {4, 5}}));
  const std::vector<WorkerCapacity> workers = {{.slots = 4}, {.slots = 0}, {.slots = 4}};
  const std::vector<LayerChange> changes = rebalance(cost, current, workers, {}, {.expert_bytes = 1, .budget_bytes = 0});
  ASSERT_EQ(changes.size(), 2U);
  for (const LayerChange& change : changes) {
    EXPECT_TRUE(change.is_forced);
    EXPECT_EQ(change.placement, lists({{0, 1, 2}, {}, {4, 5, 3}}));
    EXPECT_EQ(change.num_loads, 2);
  }
}

TEST(Rebalance, CopiesComeBackAsTheBudgetAllows) {
  // A worker of three has died, and come back empty: with two copies of each 4 of 12 are missing.
  const std::vector<std::vector<double>> cost = {{6, 5, 4, 3, 2, 1}};
  const std::vector<WorkerCapacity> workers = equal_workers(3, 4);
  LayerPlacement current = spread(cost[0], workers, kTwice);
  const LayerPlacement whole = current;
  current[1].clear();
  for (int call = 1; call <= 2; ++call) {
    const std::vector<LayerChange> changes =
        rebalance(cost, {&current, 1}, workers, kTwice, {.expert_bytes = 1, .budget_bytes = 2});
    ASSERT_EQ(changes.size(), 1U);
    EXPECT_TRUE(changes[0].is_forced);
    EXPECT_EQ(changes[0].num_loads, 2);
    current = changes[0].placement;
    EXPECT_EQ(num_placed(current), 8 + 2 * call);
  }
  expect_sound(current, 6, workers);
  EXPECT_EQ(copies_in(current, 6), copies_in(whole, 6));
}

TEST(Rebalance, AHotExpertGetsTheCopyOfOneThatCooledDown) {
  const std::vector<WorkerCapacity> workers = equal_workers(2, 3);
  const LayerPlacement current = lists({{0, 1, 2}, {3, 4, 0}});  // 0 had the extra slot
  const std::vector<double> cost = {1, 1, 1, 9, 1};
  const LayerPlacement next = spread_near(cost, workers, {.extra_slots = 1}, current, kNoLimit);
  EXPECT_EQ(copies_in(next, 5), (std::vector<int32_t>{1, 1, 1, 2, 1}));
  EXPECT_LE(count_loads(current, next), 3);
  EXPECT_EQ(copies_in(spread_near(cost, workers, {.extra_slots = 1}, current, 0), 5), copies_in(current, 5));
}

TEST(Rebalance, AnyDrawStaysSoundWithinItsLimitsAndComesToRest) {
  Draws draws(21);
  int num_moved = 0, num_saved = 0;
  for (int draw = 0; draw < 800; ++draw) {
    SCOPED_TRACE(draw);
    const int64_t num_experts = draws.between(1, 40), num_workers = draws.between(2, 8);
    const int64_t num_extra = draws.below(num_experts + 1);
    std::vector<WorkerCapacity> workers =
        equal_workers(num_workers, static_cast<int32_t>((num_experts + num_extra) / (num_workers - 1) + 1 + draws.below(3)));
    for (WorkerCapacity& worker : workers) worker.speed = draws.below(3) == 0 ? 0.5 + draws.unit() : 1;
    const bool twice = draws.below(4) == 0 && num_workers > 2 && 2 * num_experts <= (num_workers - 1) * workers[0].slots;
    const Redundancy redundancy = twice ? kTwice : Redundancy{.extra_slots = num_extra};
    const std::vector<double> before = draws.costs(num_experts);
    const LayerPlacement current = spread(before, workers, redundancy);
    const std::vector<std::vector<double>> cost = {drifted(before, draws, 0.8)};
    const auto victim = static_cast<std::size_t>(draws.below(num_workers));
    const bool dies = draws.below(3) == 0 && !current[victim].empty();
    if (dies) workers[victim].slots = 0;
    const int64_t budget = draws.below(2) == 0 ? 1'000'000 : draws.below(8);
    const RebalanceLimits limits{.expert_bytes = 1, .budget_bytes = budget};
    const std::vector<LayerChange> changes = rebalance(cost, {&current, 1}, workers, redundancy, limits);
    EXPECT_TRUE(!dies || changes.size() == 1);
    if (changes.empty()) continue;
    const LayerChange& change = changes[0];
    expect_sound(change.placement, num_experts, workers);
    EXPECT_EQ(change.num_loads, count_loads(current, change.placement));
    EXPECT_EQ(change.is_forced, dies);
    EXPECT_DOUBLE_EQ(change.cost_after, placement_cost(change.placement, cost[0], workers));
    if (!dies) {
      EXPECT_LE(change.num_loads, budget);
      EXPECT_LE(change.cost_after, 0.95 * change.cost_before * (1 + 1e-12));
      num_moved += static_cast<int>(change.num_loads);
      num_saved += static_cast<int>(count_loads(current, spread(cost[0], workers, redundancy)) - change.num_loads);
    }
    if (budget == 1'000'000) {
      EXPECT_TRUE(rebalance(cost, {&change.placement, 1}, workers, redundancy, limits).empty());
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(num_saved, 2 * num_moved);  // against placing afresh
}

void expect_rebalance_error(const LayerPlacement& current, const RebalanceLimits& limits, const std::string& message) {
  const std::vector<std::vector<double>> cost = {{1, 1}};
  try {
    rebalance(cost, {&current, 1}, equal_workers(2, 2), {}, limits);
    FAIL() << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.what(), message);
  }
}

TEST(Rebalance, RefusesWhatDoesNotFit) {
  const RebalanceLimits fine{.expert_bytes = 1};
  expect_rebalance_error(lists({{0, 1}}), fine, "rebalance: a placement on 1 workers for 2; allowed: the same");
  expect_rebalance_error(lists({{0, 2}, {1}}), fine, "rebalance: expert 2 on worker 0; allowed: each of 0 to 1 once");
  expect_rebalance_error(lists({{0}, {1, 1}}), fine, "rebalance: expert 1 on worker 1; allowed: each of 0 to 1 once");
  expect_rebalance_error(
      lists({{0}, {1}}), {},
      "rebalance: experts of 0 bytes, a budget of 0 and a least gain of 0.050000; allowed: at least 1, 0 and 0");
}

}  // namespace
}  // namespace ferry
