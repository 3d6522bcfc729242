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

}  // namespace
}  // namespace ferry
