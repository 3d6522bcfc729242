#include "profiler/clock_sync.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/made_capture.h"

namespace ferry {
namespace {

/// A rank whose clock stands and runs differently, reached over a line with delays.
struct Link {
  double offset_ns = 0;   // rank - coordinator at 0
  double drift = 0;       // of the rank's clock
  int64_t delay_ns = 0;   // one way, at best
  int64_t jitter_ns = 0;  // mean of what comes on top, each way
  double asymmetry = 0;   // share of the delay that moves from the way back to the way there

  double rank_time(double coordinator_ns) const { return coordinator_ns + offset_ns + drift * coordinator_ns; }
};

std::vector<ClockExchange> exchange(const Link& link, int64_t begin_ns, int count, std::mt19937& random) {
  std::exponential_distribution<double> jitter(link.jitter_ns > 0 ? 1.0 / static_cast<double>(link.jitter_ns) : 1e9);
  std::vector<ClockExchange> exchanges;
  int64_t now = begin_ns;
  for (int i = 0; i < count; ++i) {
    const double there = static_cast<double>(link.delay_ns) * (1 + link.asymmetry) + jitter(random);
    const double back = static_cast<double>(link.delay_ns) * (1 - link.asymmetry) + jitter(random);
    const double asked = static_cast<double>(now);
    exchanges.push_back({.sent_ns = now,
                         .rank_ns = std::llround(link.rank_time(asked + there)),
                         .received_ns = now + std::llround(there + back)});
    now += std::llround(there + back) + 1000;
  }
  return exchanges;
}

/// How far the line is from the truth, at worst, between two moments of the coordinator.
double worst_error(const ClockAlignment& line, const Link& link, double begin_ns, double end_ns) {
  double worst = 0;
  for (int i = 0; i <= 100; ++i) {
    const double t = begin_ns + (end_ns - begin_ns) * i / 100;
    const auto rank = static_cast<int64_t>(std::llround(link.rank_time(t)));
    worst = std::max(worst, std::abs(static_cast<double>(line.to_coordinator_ns(rank)) - t));
  }
  return worst;
}

class FitClock : public testing::TestWithParam<Link> {};

TEST_P(FitClock, TheTruthLiesWithinTheBound) {
  const Link link = GetParam();
  std::mt19937 random(5);
  constexpr double kSecond = 1e9;
  std::vector<ClockExchange> exchanges = exchange(link, 0, 64, random);
  for (int between = 1; between < 6; ++between) {
    const auto more = exchange(link, static_cast<int64_t>(between * 10 * kSecond), 8, random);
    exchanges.insert(exchanges.end(), more.begin(), more.end());
  }
  const auto last = exchange(link, static_cast<int64_t>(60 * kSecond), 64, random);
  exchanges.insert(exchanges.end(), last.begin(), last.end());
  const ClockAlignment line = fit_clock(exchanges);
  EXPECT_LE(worst_error(line, link, 0, 60 * kSecond), line.bound_ns + 1);
  EXPECT_LE(line.bound_ns, 4.0 * static_cast<double>(link.delay_ns + link.jitter_ns) + 2) << "and the bound is worth something";
  EXPECT_NEAR(line.drift, -link.drift / (1 + link.drift), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Links, FitClock,
    testing::Values(Link{.offset_ns = 5e6, .delay_ns = 500},
                    Link{.offset_ns = -3e12, .drift = 40e-6, .delay_ns = 20'000, .jitter_ns = 5'000},
                    Link{.offset_ns = 1e9, .drift = -50e-6, .delay_ns = 30'000, .jitter_ns = 30'000},
                    Link{.offset_ns = 7, .drift = 1e-6, .delay_ns = 8'000, .jitter_ns = 2'000, .asymmetry = 0.8}));

TEST(FitClockShort, TakesNoDriftFromOneBurst) {
  const Link link{.offset_ns = 1e6, .drift = 20e-6, .delay_ns = 10'000, .jitter_ns = 4'000};
  std::mt19937 random(9);
  const ClockAlignment line = fit_clock(exchange(link, 0, 64, random));
  EXPECT_EQ(line.drift, 0);
  EXPECT_LE(worst_error(line, link, 0, 2e6), line.bound_ns + 1);
}

TEST(FitClockShort, TwoBurstsGiveTheDriftBetweenThem) {
  const Link link{.offset_ns = 1e6, .drift = 45e-6, .delay_ns = 10'000, .jitter_ns = 4'000};
  std::mt19937 random(11);
  std::vector<ClockExchange> exchanges = exchange(link, 0, 64, random);
  const auto last = exchange(link, 400'000'000, 64, random);
  exchanges.insert(exchanges.end(), last.begin(), last.end());
  const ClockAlignment line = fit_clock(exchanges);
  EXPECT_LE(worst_error(line, link, 0, 4e8), 5'000) << "without the drift it would be 18 us";
  EXPECT_LE(worst_error(line, link, 0, 4e8), line.bound_ns + 1);
}

TEST(FitClockShort, OneExchangeIsEnough) {
  const std::vector<ClockExchange> one = {{.sent_ns = 1000, .rank_ns = 501'500, .received_ns = 2000}};
  const ClockAlignment line = fit_clock(one);
  EXPECT_EQ(line.to_coordinator_ns(501'500), 1500);
  EXPECT_EQ(line.bound_ns, 500);
}

TEST(FindExchanges, KnowTheOffsetToAMessagesLength) {
  const MadeRun run{.world_size = 3, .clock_offset_ns = -4e9};
  const Capture capture = make_made_capture(run);
  const std::vector<ClockExchange> exchanges = find_exchanges(capture.ranks[0], capture.ranks[2]);
  EXPECT_EQ(exchanges.size(), static_cast<std::size_t>((run.num_prefill_steps + run.num_decode_steps) * run.num_layers));
  for (const ClockExchange& e : exchanges)
    EXPECT_LE(std::abs(e.offset_ns() - run.clock_offset_ns), static_cast<double>(e.round_trip_ns()) / 2 + 1);
  const ClockAlignment line = fit_clock(exchanges);
  EXPECT_LE(std::abs(line.offset_ns - run.clock_offset_ns), line.bound_ns + 1);
}

TEST(ObeyCausality, MovesAClockThatIsOffByMoreThanMessagesTake) {
  const MadeRun run{.world_size = 3, .clock_offset_ns = 5e6, .clock_drift = 0, .clock_bound_ns = 100};
  for (const double error_ns : {0.0, 300'000.0, -300'000.0}) {
    Capture capture = make_made_capture(run);
    for (std::size_t r = 1; r < capture.ranks.size(); ++r) {
      capture.ranks[r].alignment.offset_ns += error_ns;
      obey_causality(capture.ranks[0], capture.ranks[r]);
      const ClockAlignment& line = capture.ranks[r].alignment;
      if (error_ns == 0) {
        EXPECT_EQ(line.offset_ns, run.clock_offset_ns) << "what is right stays";
        EXPECT_EQ(line.bound_ns, run.clock_bound_ns);
      } else {
        EXPECT_NEAR(line.offset_ns, run.clock_offset_ns, 50'000) << "the messages take a few microseconds";
        EXPECT_GE(line.bound_ns, std::abs(line.offset_ns - run.clock_offset_ns));
      }
    }
  }
}

TEST(ClockSync, ExchangesOfALongCaptureAreThinnedOut) {
  std::vector<ClockExchange> exchanges;
  for (int64_t i = 0; i < 50'000; ++i) {
    keep_exchange(exchanges, {.sent_ns = i, .rank_ns = i, .received_ns = i + 1});
    ASSERT_LE(exchanges.size(), kMaxExchanges);
    ASSERT_EQ(exchanges.back().sent_ns, i) << "the newest is there";
  }
  EXPECT_GE(exchanges.size(), kMaxExchanges / 2);
  EXPECT_EQ(exchanges.front().sent_ns, 0) << "and the oldest";
  for (std::size_t i = 1; i < exchanges.size(); ++i) ASSERT_LT(exchanges[i - 1].sent_ns, exchanges[i].sent_ns);
}

}  // namespace
}  // namespace ferry
