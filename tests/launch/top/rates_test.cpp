#include "launch/top/rates.h"

#include <gtest/gtest.h>

#include "launch/top/figures.h"

namespace ferry {
namespace {

LiveStatus look_at(double uptime_s, int64_t num_steps) {
  LiveStatus status;
  status.server.uptime_s = uptime_s;
  status.steps.count = num_steps;
  return status;
}

double steps_of(const LiveStatus& status) { return static_cast<double>(status.steps.count); }

TEST(Ratio, OfNothingIsNone) {
  EXPECT_EQ(ratio(1, 4), 0.25);
  EXPECT_FALSE(ratio(1, 0).has_value());
}

TEST(Quantile, IsSpreadEvenlyInABucketButTheFirst) {
  const LiveStatus::Distribution values{.bounds = {1, 2, 4}, .counts = {2, 2, 4, 2}};
  for (const double share : {0.1, 0.2}) {
    EXPECT_EQ(quantile(values, share).value().value, 1);
    EXPECT_TRUE(quantile(values, share).value().is_bound) << "below the first bound nothing is known but that bound";
  }
  EXPECT_DOUBLE_EQ(quantile(values, 0.3).value().value, 1.5);
  EXPECT_DOUBLE_EQ(quantile(values, 0.4).value().value, 2);
  EXPECT_DOUBLE_EQ(quantile(values, 0.6).value().value, 3);
  EXPECT_FALSE(quantile(values, 0.6).value().is_bound);
  EXPECT_DOUBLE_EQ(quantile(values, 0.95).value().value, 4) << "above the last bound nothing is known but that bound";
  EXPECT_FALSE(quantile({.bounds = {1}, .counts = {0, 0}}, 0.5).has_value());
  EXPECT_FALSE(quantile({}, 0.5).has_value());
}

TEST(LiveHistory, RatesAreOfTheLastSeconds) {
  LiveHistory history;
  history.add(look_at(100, 0));
  EXPECT_FALSE(history.rate(steps_of).has_value()) << "one look has no rate";
  history.add(look_at(101, 1000));
  EXPECT_DOUBLE_EQ(history.rate(steps_of).value(), 1000);
  for (int i = 2; i <= 10; ++i) history.add(look_at(100 + i, 1000 + 10 * i));
  EXPECT_DOUBLE_EQ(history.rate(steps_of).value(), 10) << "the burst is more than five seconds ago";
  EXPECT_EQ(history.line(steps_of).size(), 10U);
  EXPECT_DOUBLE_EQ(history.line(steps_of).front(), 1000);
}

TEST(LiveHistory, BeginsAnewWithAnotherServer) {
  LiveHistory history;
  history.add(look_at(100, 5000));
  history.add(look_at(3, 20));
  EXPECT_FALSE(history.rate(steps_of).has_value());
  history.add(look_at(4, 30));
  EXPECT_DOUBLE_EQ(history.rate(steps_of).value(), 10);
}

TEST(LiveHistory, ForgetsWhatIsOld) {
  LiveHistory history;
  for (int i = 0; i < 500; ++i) history.add(look_at(i, i));
  EXPECT_LE(history.line(steps_of).size(), 120U);
}

TEST(LiveHistory, DistributionsAreOfTheLastMinuteIfThereWereValues) {
  LiveHistory history;
  const auto add = [&](double uptime_s, std::vector<int64_t> counts, double sum) {
    LiveStatus status = look_at(uptime_s, 0);
    status.seconds.queue = {.bounds = {1, 2}, .counts = std::move(counts), .sum = sum};
    history.add(std::move(status));
  };
  add(10, {5, 0, 0}, 2);
  EXPECT_EQ(count_of(history.recent(&LiveStatus::Seconds::queue)), 5) << "since the start, for want of another look";
  add(20, {5, 3, 0}, 8);
  const LiveStatus::Distribution found = history.recent(&LiveStatus::Seconds::queue);
  EXPECT_EQ(found.counts, (std::vector<int64_t>{0, 3, 0}));
  EXPECT_DOUBLE_EQ(found.sum, 6);
}

TEST(Figures, HaveThreeDigitsThatCount) {
  EXPECT_EQ(figure_text(0.5249), "0.52");
  EXPECT_EQ(figure_text(41.83), "41.8");
  EXPECT_EQ(figure_text(4180.4), "4,180");
  EXPECT_EQ(figure_text(0), "0");
  EXPECT_EQ(figure_text({}), "-");
  EXPECT_EQ(figure_text(1e300), "-");
  EXPECT_EQ(whole_text(-1234567), "-1,234,567");
  EXPECT_EQ(whole_text(-123), "-123");
  EXPECT_EQ(percent_text(0.418), "41.8 %");
  EXPECT_EQ(byte_rate_text(12e6), "12.0 MB/s");
  EXPECT_EQ(byte_rate_text(999), "999 B/s");
  EXPECT_EQ(seconds_text(0.0034), "3.40 ms");
  EXPECT_EQ(seconds_text(12e-6), "12.0 us");
  EXPECT_EQ(seconds_text(2.5), "2.50 s");
  EXPECT_EQ(age_text(0.2), "0 s");
  EXPECT_EQ(age_text(59.9), "59 s");
  EXPECT_EQ(age_text(3600 * 2 + 300), "2 h 5 min");
  EXPECT_EQ(age_text(-5), "0 s");
}

}  // namespace
}  // namespace ferry
