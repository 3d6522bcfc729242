#include "profiler/archive/step_judge.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

namespace ferry {
namespace {

constexpr int64_t kThatHour = 3'600'000;

StepFacts decode(double seconds, int64_t rows = 4) {
  return {.seconds = seconds, .phase = Phase::kDecode, .num_rows = rows, .num_sequences = rows, .num_keys = 100 * rows};
}

TEST(StepJudge, NamesAStepThatTookAMultiple) {
  StepJudge judge;
  for (int i = 0; i < 200; ++i) EXPECT_EQ(judge.judge(decode(0.010), kThatHour), std::nullopt) << i;
  EXPECT_EQ(judge.judge(decode(0.039), kThatHour), KeptFor::kSlow) << "the slowest of its hour, but no multiple";
  EXPECT_EQ(judge.judge(decode(0.041), kThatHour), KeptFor::kLong);
  EXPECT_EQ(judge.judge(decode(0.045), kThatHour + 1), std::nullopt) << "the next one right behind it is the same story";
  EXPECT_EQ(judge.judge(decode(0.200), kThatHour + 2), KeptFor::kLong) << "unless it is much worse";
  EXPECT_EQ(judge.judge(decode(0.050), kThatHour + 60), KeptFor::kLong);
}

TEST(StepJudge, OtherLoadsAreNoAnomaly) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    std::lognormal_distribution<double> noise(0, 0.2);
    StepJudge judge;
    int num_long = 0;
    for (int i = 0; i < 20'000; ++i) {
      const int64_t rows = int64_t{1} << (random() % 6);  // 1 to 32, each taking its time
      num_long +=
          judge.judge(decode(0.002 * static_cast<double>(rows) * noise(random), rows), kThatHour + i / 100) == KeptFor::kLong;
    }
    EXPECT_EQ(num_long, 0) << "seed " << seed;
  }
}

TEST(StepJudge, ShortStepsMayWaver) {
  StepJudge judge;
  for (int i = 0; i < 100; ++i) judge.judge(decode(0.0001), kThatHour);
  EXPECT_NE(judge.judge(decode(0.0009), kThatHour), KeptFor::kLong) << "nine times as long, but less than a millisecond";
}

TEST(StepJudge, NewKindsAreNotJudgedAtOnce) {
  StepJudge judge;
  judge.judge(decode(0.001), kThatHour);
  EXPECT_EQ(judge.judge(decode(1.0), kThatHour), std::nullopt);
}

TEST(StepKind, TellsSizesAndContextsApart) {
  EXPECT_EQ(kind_of(decode(1, 4)), kind_of(decode(2, 4)));
  EXPECT_NE(kind_of(decode(1, 4)), kind_of(decode(1, 5)));
  StepFacts longer = decode(1, 4);
  longer.num_keys += 20;
  EXPECT_EQ(kind_of(longer), kind_of(decode(1, 4))) << "few keys more";
  longer.num_keys *= 10;
  EXPECT_NE(kind_of(longer), kind_of(decode(1, 4)));
  StepFacts prefill = decode(1, 4);
  prefill.phase = Phase::kPrefill;
  EXPECT_NE(kind_of(prefill), kind_of(decode(1, 4)));
  EXPECT_NO_FATAL_FAILURE(kind_of({.num_rows = INT64_MAX, .num_sequences = 0, .num_keys = INT64_MAX}));
}

}  // namespace
}  // namespace ferry
