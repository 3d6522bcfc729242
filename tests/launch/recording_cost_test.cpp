#include "launch/recording_cost.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace ferry {
namespace {

std::vector<double> up_to(int count) {
  std::vector<double> values;
  for (int i = count; i >= 1; --i) values.push_back(i);
  return values;
}

TEST(RecordingCostTest, TheIntervalIsThatOfTheSignTest) {
  // Conover, Practical Nonparametric Statistics, table A3: of 6, 10 and 24 values the smallest, the second and the seventh.
  EXPECT_EQ(summarise_pairs(up_to(6)).low, 1);
  EXPECT_EQ(summarise_pairs(up_to(6)).high, 6);
  EXPECT_EQ(summarise_pairs(up_to(10)).low, 2);
  EXPECT_EQ(summarise_pairs(up_to(10)).high, 9);
  EXPECT_EQ(summarise_pairs(up_to(24)).low, 7);
  EXPECT_EQ(summarise_pairs(up_to(24)).high, 18);
  EXPECT_EQ(summarise_pairs(up_to(24)).median, 12.5);
}

TEST(RecordingCostTest, FewPairsHaveTheirRange) {
  const MeasuredCost cost = summarise_pairs({0.03, -0.01, 0.02});
  EXPECT_EQ(cost.low, -0.01);
  EXPECT_EQ(cost.high, 0.03);
  EXPECT_EQ(cost.pairs, (std::vector<double>{0.03, -0.01, 0.02})) << "as they came";
  EXPECT_EQ(summarise_pairs({0.5}).median, 0.5);
  EXPECT_EQ(interval_text(cost), "-1.00 to +3.00, 3 pairs, too few for an interval");
  EXPECT_EQ(interval_text(summarise_pairs({0.5})), "1 pair, too few for an interval");
  EXPECT_EQ(interval_text(summarise_pairs({0.01, 0.01, 0.01, 0.01, 0.01, 0.02})), "+1.00 to +2.00, 6 pairs");
  EXPECT_THROW(summarise_pairs({}), std::invalid_argument);
}

/// Work that takes `cost` longer while it is recorded, on a machine that slows down by `drift` from run to run.
class PlantedWork {
 public:
  PlantedWork(double cost, double drift) : cost_(cost), drift_(drift) {}

  RecordedWork work() {
    return {
        .start = [this] { is_recorded_ = true; }, .stop = [this] { is_recorded_ = false; }, .rate = [this] { return rate(); }};
  }

 private:
  double rate() {
    seconds_ *= 1 + drift_;
    return 1 / (is_recorded_ ? seconds_ * (1 + cost_) : seconds_);
  }

  const double cost_, drift_;
  double seconds_ = 1e-3;
  bool is_recorded_ = false;
};

TEST(RecordingCostTest, APlantedCostIsFound) {
  for (const double cost : {0.0, 0.005, 0.2}) {
    PlantedWork planted(cost, 0);
    EXPECT_NEAR(measure_pairs(planted.work(), 20, {0, 0}).median, cost, 1e-9);
  }
}

TEST(RecordingCostTest, AMachineThatSlowsDownIsNoCost) {
  constexpr double kDrift = 0.01;  // of a run; a window has two
  PlantedWork planted(0.005, kDrift);
  const MeasuredCost cost = measure_pairs(planted.work(), 20, {0, 0});
  EXPECT_NEAR(cost.median, 0.005, 0.001);
  EXPECT_LE(cost.low, 0.005 - kDrift) << "what a pair has of the drift is in its interval";
  EXPECT_GE(cost.high, 0.005 + kDrift);
}

}  // namespace
}  // namespace ferry
