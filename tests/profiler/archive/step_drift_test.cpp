#include "profiler/archive/step_drift.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "tests/support/draws.h"

namespace ferry {
namespace {

constexpr int64_t kFirstDay = int64_t{20'000} * StepHistory::kDay;

/// A server that decodes, a made day: `length` tells the seconds of a step of so many rows at a minute, but for noise.
struct MadeDay {
  std::mt19937 random;
  StepHistory history;
  DriftWatch watch;
  int64_t minute = 0;

  explicit MadeDay(uint32_t seed) : random(seed) {}

  /// Runs to `end`; whether an alarm was on at any minute.
  bool run(int64_t end, const std::function<int64_t(int64_t)>& rows_at, const std::function<double(int64_t, int64_t)>& length) {
    constexpr int kStepsOfAMinute = 100;
    std::lognormal_distribution<double> noise(0, 0.25);
    bool was_alarmed = false;
    for (; minute < end; ++minute) {
      const int64_t now_s = kFirstDay + 60 * minute;
      // The host's speed halves for seconds at times.
      const double burst_begin = std::uniform_real_distribution<double>(0, 4)(random);
      for (int i = 0; i < kStepsOfAMinute; ++i) {
        const int64_t rows = rows_at(minute);
        const StepFacts facts{.phase = Phase::kDecode, .num_rows = rows, .num_sequences = rows, .num_keys = 500 * rows};
        const double at = static_cast<double>(i) / kStepsOfAMinute;
        const double slowed = at > burst_begin && at < burst_begin + 0.1 ? 2 : 1;
        const double seconds = length(minute, rows) * noise(random) * slowed;
        history.add(kind_of(facts), seconds, now_s);
        watch.add(kind_of(facts), seconds, now_s);
      }
      watch.look(history, now_s + 59);
      was_alarmed = was_alarmed || decode().is_alarmed;
    }
    return was_alarmed;
  }
  const PhaseDrift& decode() const { return watch.drift()[static_cast<std::size_t>(Phase::kDecode)]; }
};

constexpr uint32_t kDays = test::draws(6U, 1U);

int64_t four(int64_t) { return 4; }
double usual(int64_t, int64_t rows) { return 0.002 * (3 + static_cast<double>(rows)); }

TEST(StepDrift, PlantedDriftIsNamedAndItsEndToo) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    MadeDay day(seed);
    EXPECT_FALSE(day.run(300, four, usual)) << "seed " << seed;
    EXPECT_NEAR(day.decode().median_ratio, 1, 0.08);
    day.run(320, four, [](int64_t m, int64_t rows) { return 1.4 * usual(m, rows); });
    EXPECT_TRUE(day.decode().is_alarmed) << "seed " << seed;
    EXPECT_NEAR(day.decode().median_ratio, 1.4, 0.1) << "seed " << seed;
    EXPECT_EQ(day.decode().num_alarms, 1);
    day.run(350, four, usual);
    EXPECT_FALSE(day.decode().is_alarmed) << "seed " << seed;
    EXPECT_EQ(day.decode().num_alarms, 1) << "it wavers between on and off";
  }
}

TEST(StepDrift, NoiseIsNotNamed) {
  for (uint32_t seed = 100; seed < 100 + kDays; ++seed) EXPECT_FALSE(MadeDay(seed).run(600, four, usual)) << "seed " << seed;
}

TEST(StepDrift, OtherLoadsAreNotNamed) {
  for (uint32_t seed = 200; seed < 200 + kDays; ++seed) {
    MadeDay day(seed);
    const auto wavers = [&](int64_t) { return int64_t{1} << (day.random() % 6); };
    EXPECT_FALSE(day.run(400, wavers, usual)) << "seed " << seed;
    EXPECT_FALSE(day.run(
        600, [](int64_t) { return 32; }, usual))
        << "five times as long, but of eight times the rows; seed " << seed;
    EXPECT_FALSE(day.run(
        700, [](int64_t m) { return 1 + m % 60 / 2; }, usual))
        << "seed " << seed;
  }
}

TEST(StepDrift, DriftUnderAWaveringLoadIsNamed) {
  for (uint32_t seed = 300; seed < 300 + kDays; ++seed) {
    MadeDay day(seed);
    const auto wavers = [&](int64_t) { return int64_t{1} << (day.random() % 6); };
    EXPECT_FALSE(day.run(300, wavers, usual)) << "seed " << seed;
    day.run(
        320, [](int64_t) { return 1; }, [](int64_t m, int64_t rows) { return 1.5 * usual(m, rows); });
    EXPECT_TRUE(day.decode().is_alarmed) << "shorter than most of the day, but not than their like; seed " << seed;
  }
}

TEST(StepDrift, OneBadMinuteIsNotNamed) {
  for (uint32_t seed = 400; seed < 400 + kDays; ++seed) {
    MadeDay day(seed);
    day.run(300, four, usual);
    day.run(301, four, [](int64_t m, int64_t rows) { return 3 * usual(m, rows); });
    EXPECT_FALSE(day.run(330, four, usual)) << "seed " << seed;
  }
}

TEST(StepDrift, WithoutABaselineNothingIsTold) {
  MadeDay day(1);
  EXPECT_FALSE(day.run(5, four, [](int64_t m, int64_t) { return 0.001 * std::pow(2, static_cast<double>(m)); }));
  EXPECT_EQ(day.decode().median_ratio, 0);
}

}  // namespace
}  // namespace ferry
