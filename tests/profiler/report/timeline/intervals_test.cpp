#include "profiler/report/timeline/intervals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ferry {
namespace {

constexpr int64_t kRange = 64;

/// Every nanosecond of [0, kRange) as a flag.
std::vector<bool> flags_of(const IntervalSet& set) {
  std::vector<bool> flags(kRange, false);
  for (const Interval& i : set) {
    for (int64_t t = i.begin; t < i.end; ++t) flags[static_cast<std::size_t>(t)] = true;
  }
  return flags;
}

void expect_proper(const IntervalSet& set) {
  for (std::size_t i = 0; i < set.size(); ++i) {
    EXPECT_LT(set[i].begin, set[i].end);
    if (i > 0) {
      EXPECT_LT(set[i - 1].end, set[i].begin) << "neighbours touch";
    }
  }
}

class RandomSets : public testing::TestWithParam<unsigned> {
 protected:
  IntervalSet draw() {
    std::vector<Interval> intervals(random_() % 9);
    for (Interval& i : intervals) i = {static_cast<int64_t>(random_() % kRange), static_cast<int64_t>(random_() % kRange)};
    return make_interval_set(intervals);
  }
  std::mt19937 random_{GetParam()};
};

TEST_P(RandomSets, AgreeWithSetsOfNanoseconds) {
  for (int round = 0; round < 200; ++round) {
    const IntervalSet a = draw(), b = draw();
    const std::vector<bool> fa = flags_of(a), fb = flags_of(b);
    const IntervalSet both = unite(a, b), common = intersect(a, b), rest = subtract(a, b);
    const Interval window{static_cast<int64_t>(random_() % kRange), static_cast<int64_t>(random_() % kRange)};
    const IntervalSet inside = clip(a, window);
    for (const IntervalSet* set : {&a, &both, &common, &rest, &inside}) expect_proper(*set);
    const std::vector<bool> f_both = flags_of(both), f_common = flags_of(common), f_rest = flags_of(rest),
                            f_in = flags_of(inside);
    for (std::size_t t = 0; t < kRange; ++t) {
      EXPECT_EQ(f_both[t], fa[t] || fb[t]);
      EXPECT_EQ(f_common[t], fa[t] && fb[t]);
      EXPECT_EQ(f_rest[t], fa[t] && !fb[t]);
      const auto at = static_cast<int64_t>(t);
      EXPECT_EQ(f_in[t], fa[t] && at >= window.begin && at < window.end);
    }
    EXPECT_EQ(total(a), std::count(fa.begin(), fa.end(), true));
    EXPECT_EQ(total(both) + total(common), total(a) + total(b));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSets, testing::Range(1U, 6U));

TEST(IntervalSet, DropsEmptyAndInvertedAndJoinsTouching) {
  EXPECT_EQ(make_interval_set({{5, 5}, {9, 3}, {1, 2}, {2, 4}}), (IntervalSet{{1, 4}}));
  EXPECT_TRUE(make_interval_set({}).empty());
}

}  // namespace
}  // namespace ferry
