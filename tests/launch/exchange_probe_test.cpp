#include "launch/exchange_probe.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(ExchangeProbe, AnswersForEverySizeAndNumberOfRanks) {
  for (const int64_t workers : {1, 3}) {
    const Curve curve = measure_exchange(ProbeSockets::kHost, workers);
    ASSERT_EQ(curve.points.front().size, 1024) << workers;
    EXPECT_EQ(curve.points.back().size, 8 << 20) << workers;
    for (std::size_t i = 1; i < curve.points.size(); ++i) EXPECT_GT(curve.points[i].size, curve.points[i - 1].size);
    for (const Curve::Point& p : curve.points) EXPECT_GT(p.seconds, 0) << p.size;
  }
}

TEST(ExchangeProbe, TakesTheNetworksSocketsToo) {
  const Curve curve = measure_exchange(ProbeSockets::kTcp, 1);
  EXPECT_EQ(curve.points.size(), 9U);
  EXPECT_GT(curve.points.back().seconds, 0);
}

}  // namespace
}  // namespace ferry
