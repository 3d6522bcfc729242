#include "runtime/base/histogram.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(Histogram, ABoundIsInItsBucket) {
  Histogram histogram({1, 2.5, 10});
  for (const double value : {0.0, 1.0, 1.5, 2.5, 2.6, 10.0, 10.5, 1e9}) histogram.observe(value);
  const std::vector<int64_t> counts(histogram.counts().begin(), histogram.counts().end());
  EXPECT_EQ(counts, (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(histogram.sum(), 0.0 + 1.0 + 1.5 + 2.5 + 2.6 + 10.0 + 10.5 + 1e9);
  const Histogram snapshot = histogram;
  histogram.observe(0);
  EXPECT_EQ(snapshot.counts()[0], 2);
}

TEST(Histogram, BucketsCanBeMerged) {
  Histogram histogram({0.1, 0.2, 1, 2, 5});
  for (const double value : {0.05, 0.15, 0.15, 0.5, 1.5, 3.0, 9.0}) histogram.observe(value);
  const auto counts_of = [](const Histogram& each) { return std::vector<int64_t>(each.counts().begin(), each.counts().end()); };
  const Histogram merged = histogram.merged({1, 5});
  EXPECT_EQ(counts_of(merged), (std::vector<int64_t>{4, 2, 1}));
  EXPECT_EQ(merged.sum(), histogram.sum());
  EXPECT_EQ(counts_of(histogram.merged({0.1, 0.2, 1, 2, 5})), counts_of(histogram));
  EXPECT_EQ(counts_of(histogram.merged({})), (std::vector<int64_t>{7}));
}

}  // namespace
}  // namespace ferry
