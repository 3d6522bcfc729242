#include "profiler/archive/retention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/support/draws.h"

namespace ferry {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000, kHourNs = 3600 * kSecondNs;
constexpr int64_t kStart = int64_t{500'000} * kHourNs;

/// An archive that never has more than it may.
struct Kept {
  int64_t max_bytes;
  std::vector<KeptSize> steps;

  int64_t bytes() const {
    int64_t total = 0;
    for (const KeptSize& step : steps) total += step.bytes;
    return total;
  }
  void add(const KeptSize& step) {
    steps.push_back(step);
    const std::vector<std::size_t> dropped = choose_to_drop(steps, max_bytes, step.time_ns);
    for (auto i = dropped.rbegin(); i != dropped.rend(); ++i) steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(*i));
  }
};

KeptSize random_step(std::mt19937& random, int64_t time_ns, double anomaly_share) {
  std::uniform_real_distribution<double> share(0, 1);
  KeptSize step{.time_ns = time_ns, .bytes = 20'000 + static_cast<int64_t>(20'000 * share(random))};
  step.phase = share(random) < 0.2 ? Phase::kPrefill : Phase::kDecode;
  step.seconds = std::lognormal_distribution<double>(-6, 0.3)(random);
  if (share(random) < anomaly_share) step.why = share(random) < 0.5 ? KeptFor::kLong : KeptFor::kWorkerChange;
  return step;
}

TEST(Retention, TheBoundHoldsWhateverComes) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Kept kept{.max_bytes = int64_t{1} << 20, .steps = {}};
    int64_t time_ns = kStart;
    for (int i = 0; i < 1500; ++i) {
      time_ns += std::uniform_int_distribution<int64_t>(0, 200 * kSecondNs)(random);
      kept.add(random_step(random, time_ns, seed % 4 == 0 ? 0.9 : 0.02));
      ASSERT_LE(kept.bytes(), kept.max_bytes);
    }
    EXPECT_GT(kept.bytes(), kept.max_bytes * 8 / 10) << "and what there is room for stays, seed " << seed;
  }
}

TEST(Retention, AnomaliesOutliveAFloodOfSamples) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    Kept kept{.max_bytes = int64_t{1} << 20, .steps = {}};
    std::vector<int64_t> anomalies;
    for (int i = 0; i < 3000; ++i) {
      const int64_t time_ns = kStart + i * 60 * kSecondNs;
      KeptSize step = random_step(random, time_ns, 0);
      if (i < 1000 && i % 100 == 50) {  // ten, long ago: less than half of the bound
        step.why = KeptFor::kStopped;
        anomalies.push_back(time_ns);
      }
      kept.add(step);
    }
    for (const int64_t time_ns : anomalies) EXPECT_EQ(std::ranges::count(kept.steps, time_ns, &KeptSize::time_ns), 1) << seed;
  }
}

TEST(Retention, ClassesThatAllWantMoreHaveAHalfAndAQuarterEach) {
  constexpr int64_t kBytes = 1000, kMaxBytes = 400 * kBytes;
  std::vector<KeptSize> steps;
  for (int64_t i = 0; i < 50 * 40; ++i) {  // in each of fifty hours four slow steps, sixteen others and twenty anomalies
    const int64_t place = i % 40;
    steps.push_back({.time_ns = kStart + i / 40 * kHourNs + place * kSecondNs,
                     .why = place < 20 ? KeptFor::kSample : KeptFor::kLong,
                     .seconds = place < 4 ? 1.0 : 0.001,
                     .bytes = kBytes});
  }
  const std::vector<std::size_t> dropped = choose_to_drop(steps, kMaxBytes, steps.back().time_ns);
  int64_t num_slow = 0, num_others = 0, num_anomalies = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (std::ranges::binary_search(dropped, i)) continue;
    (is_anomaly(steps[i].why) ? num_anomalies : steps[i].seconds > 0.1 ? num_slow : num_others) += 1;
  }
  EXPECT_NEAR(static_cast<double>(num_anomalies), 0.5 * 400 * kAfterThinning, 2);
  EXPECT_NEAR(static_cast<double>(num_slow), 0.25 * 400 * kAfterThinning, 2);
  EXPECT_NEAR(static_cast<double>(num_others), 0.25 * 400 * kAfterThinning, 2);
}

TEST(Retention, SamplesOutliveAFloodOfAnomalies) {
  std::mt19937 random(3);
  Kept kept{.max_bytes = int64_t{1} << 20, .steps = {}};
  for (int i = 0; i < 20; ++i)
    kept.add({.time_ns = kStart + i * kHourNs, .seconds = 1e-3, .bytes = 10'000});  // a fifth of the bound
  for (int i = 0; i < 2000; ++i) kept.add(random_step(random, kStart + 30 * kHourNs + i * kSecondNs, 1));
  EXPECT_EQ(std::ranges::count(kept.steps, KeptFor::kSample, &KeptSize::why), 20);
}

TEST(Retention, TheSlowestOfAnHourStay) {
  for (uint32_t seed = 0; seed < test::draws(10U, 2U); ++seed) {
    std::mt19937 random(seed);
    Kept kept{.max_bytes = int64_t{4} << 20, .steps = {}};
    std::map<int64_t, double> slowest;  // by hour, of decode steps
    for (int i = 0; i < 4000; ++i) {
      const KeptSize step = random_step(random, kStart + i * 8 * kSecondNs, 0);  // nine hours
      if (step.phase == Phase::kDecode)
        slowest[step.time_ns / kHourNs] = std::max(slowest[step.time_ns / kHourNs], step.seconds);
      kept.add(step);
    }
    // Eight steps an hour of up to 40 kB are more than a quarter of the bound; the slowest alone, two an hour, are less.
    for (const auto& [hour, seconds] : slowest)
      EXPECT_EQ(std::ranges::count(kept.steps, seconds, &KeptSize::seconds), 1) << seed;
  }
}

TEST(Retention, ExponentiallyFewerStayOfOldTimes) {
  Kept kept{.max_bytes = int64_t{4} << 20, .steps = {}};
  const int64_t num_steps = 20'000;
  for (int64_t i = 0; i < num_steps; ++i)
    kept.add({.time_ns = kStart + i * kSecondNs, .seconds = 1e-3, .bytes = 20'000});  // equally slow: no step stands out
  const int64_t now_ns = kStart + num_steps * kSecondNs;
  std::map<int, int> by_octave;  // of their age
  for (const KeptSize& step : kept.steps)
    ++by_octave[static_cast<int>(std::log2(static_cast<double>(now_ns - step.time_ns) / kSecondNs + 1))];
  // 209 steps over 14 octaves; the youngest cannot have more than there were.
  for (int octave = 5; octave <= 13; ++octave) {
    EXPECT_GE(by_octave[octave], 3) << octave;
    EXPECT_LE(by_octave[octave], 45) << octave;
  }
  std::vector<int64_t> ages;
  for (const KeptSize& step : kept.steps) ages.push_back((now_ns - step.time_ns) / kSecondNs);
  for (std::size_t i = 1; i < ages.size(); ++i) EXPECT_LE(ages[i - 1], 4 * ages[i] + 10) << "no hole, at " << ages[i];
}

TEST(Retention, WhatIsAMonthOldGoes) {
  const std::vector<KeptSize> steps = {{.time_ns = kStart, .why = KeptFor::kStopped, .bytes = 1},
                                       {.time_ns = kStart + 25 * kHourNs, .bytes = 1}};
  EXPECT_TRUE(choose_to_drop(steps, 100, kStart + 30 * 24 * kHourNs).empty());
  EXPECT_EQ(choose_to_drop(steps, 100, kStart + 30 * 24 * kHourNs + 1), std::vector<std::size_t>{0});
}

TEST(Retention, AClockThatWasSetBackDoesNoHarm) {
  Kept kept{.max_bytes = 100'000, .steps = {}};
  for (int i = 0; i < 100; ++i) kept.add({.time_ns = kStart + (i % 2) * kHourNs, .bytes = 5'000});
  EXPECT_LE(kept.bytes(), 100'000);
  EXPECT_FALSE(kept.steps.empty());
}

}  // namespace
}  // namespace ferry
