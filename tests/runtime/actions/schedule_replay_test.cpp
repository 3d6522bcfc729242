#include "runtime/actions/schedule_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ferry {
namespace {

/// Steps of 1 ms and 0.1 ms a row, of either kind.
StepClock even_clock() {
  std::vector<ReplayedStep> steps;
  for (const int rows : {1, 2, 4, 8, 16}) {
    ReplayedStep decode, prefill;
    decode.decode_rows = decode.sequences = rows;
    decode.parts.own = 1e-3 + 1e-4 * rows;
    prefill.prefill_rows = 16 * rows;
    prefill.parts.own = 1e-3 + 1e-4 * 16 * rows;
    steps.push_back(decode);
    steps.push_back(prefill);
  }
  return StepClock(steps, 0);
}

SchedulerOptions options(int64_t max_running, int64_t chunk) {
  return {.max_running = max_running,
          .max_waiting = 1000,
          .token_budget = 512,
          .prefill_chunk = chunk,
          .num_blocks = 10'000,
          .num_swap_blocks = 10'000,
          .block_tokens = 16,
          .max_context = 1 << 20,
          .vocab_size = 1};
}

TEST(StepClockTest, RowsOfBothKindsShareWhatAStepTakesOnce) {
  const StepClock clock = even_clock();
  EXPECT_NEAR(clock.seconds(4, 0), 1.4e-3, 1e-9);
  EXPECT_NEAR(clock.seconds(0, 64), 7.4e-3, 1e-9);
  EXPECT_NEAR(clock.seconds(4, 64), 7.8e-3, 1e-9);
}

/// Experts that sixteen rows touch are touched by further ones, too: those that decode beside a prompt add their rows alone.
TEST(StepClockTest, ExpertsThatBothKindsAskForAreReadOnce) {
  ReplayedStep decode, mixed;
  decode.decode_rows = decode.sequences = 2;
  decode.parts.own = 3e-3;
  mixed.decode_rows = mixed.sequences = 1;
  mixed.prefill_rows = 16;
  mixed.parts.own = 17e-3;
  const auto plan = [](double rows, bool) { return std::min(16.0, rows) + 0.05 * rows; };
  const StepClock clock(std::vector{decode, mixed, decode}, 0, 0, plan);
  EXPECT_NEAR(clock.seconds(1, 16), 17e-3, 1e-6);
  EXPECT_LT(clock.seconds(8, 16), 19e-3);
  EXPECT_GT(clock.seconds(8, 16), 17e-3);
}

TEST(ScheduleReplayTest, ARequestTakesItsStepsOneAfterTheOther) {
  const auto result = replay_schedule({{.num_prompt = 128, .num_generated = 11}}, options(4, 64), even_clock());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->num_steps, 2 + 10);
  EXPECT_NEAR(result->ttft_p50_s, 2 * 7.4e-3, 1e-6);
  EXPECT_NEAR(result->end_s, 2 * 7.4e-3 + 10 * 1.1e-3, 1e-6);
  EXPECT_NEAR(result->gap_p50_s, 1.1e-3, 1e-6);
  const auto whole = replay_schedule({{.num_prompt = 128, .num_generated = 11}}, options(4, 128), even_clock());
  ASSERT_TRUE(whole);
  EXPECT_NEAR(whole->ttft_p50_s, 13.8e-3, 1e-6);
}

TEST(ScheduleReplayTest, SlotsBoundWhatRunsAtOnce) {
  const std::vector<ReplayedRequest> requests(8, {.num_prompt = 16, .num_generated = 101});
  const auto one = replay_schedule(requests, options(1, 64), even_clock());
  const auto all = replay_schedule(requests, options(8, 64), even_clock());
  ASSERT_TRUE(one && all);
  EXPECT_NEAR(one->end_s, 8 * (2.6e-3 + 100 * 1.1e-3), 1e-4);
  EXPECT_LT(all->end_s, 0.25 * one->end_s);
}

TEST(ScheduleReplayTest, AFollowerComesWhenTheOtherIsDone) {
  const auto result = replay_schedule({{.num_prompt = 16, .num_generated = 11},
                                       {.num_prompt = 16, .num_generated = 11, .arrival_s = 77, .follows = 0, .think_s = 1}},
                                      options(4, 64), even_clock());
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->end_s, 1 + 2 * (2.6e-3 + 10 * 1.1e-3), 1e-4);
}

/// Six clients that always wait or run ask for what whole requests were. Those that only came late are as many as they are.
TEST(ScheduleReplayTest, ClientsAskAgainForWholeRequests) {
  Timeline timeline{.begin_ns = 0, .end_ns = 1000};
  const std::vector<ReplayedRequest> seen{{.num_generated = 3, .is_whole = false}, {.num_generated = 20, .arrival_s = 1}};
  timeline.requests.assign(6, RequestInfo{.arrival_ns = 0, .finished_ns = 1000});
  const std::vector<ReplayedRequest> list = repeat_clients(timeline, seen);
  ASSERT_EQ(list.size(), 48u);
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i].num_generated, 20) << i;
    EXPECT_EQ(list[i].follows, static_cast<int32_t>(i) < 6 ? -1 : static_cast<int32_t>(i) - 6) << i;
    EXPECT_EQ(list[i].arrival_s, 0) << i;
  }
  EXPECT_TRUE(repeat_clients(timeline, {seen.front()}).empty());
  timeline.requests.assign(6, RequestInfo{.arrival_ns = 600, .finished_ns = 1000});
  EXPECT_TRUE(repeat_clients(timeline, seen).empty());
}

TEST(ScheduleReplayTest, WhatCannotBeComesToNothing) {
  EXPECT_FALSE(replay_schedule({{.num_prompt = 16}}, options(0, 64), even_clock()));
  SchedulerOptions small = options(4, 64);
  small.num_blocks = 1;
  EXPECT_FALSE(replay_schedule({{.num_prompt = 1000, .num_generated = 5}}, small, even_clock()));
}

}  // namespace
}  // namespace ferry
