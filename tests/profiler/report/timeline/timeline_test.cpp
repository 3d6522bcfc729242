#include "profiler/report/timeline/timeline.h"

#include <gtest/gtest.h>

#include <set>

#include "profiler/report/lost_time/exchanges.h"
#include "profiler/report/timeline/breakdown.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

/// Slices of a lane are disjoint or nested, in drawing order, and their self times add up to what the lane covers.
void expect_nested(const Timeline& timeline) {
  for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
    const auto [first, last] = timeline.lane_range(static_cast<int32_t>(l));
    std::vector<int64_t> open_ends;
    std::vector<Interval> covered;
    int64_t self = 0;
    for (int32_t i = first; i < last; ++i) {
      const Slice& slice = timeline.slices[static_cast<std::size_t>(i)];
      EXPECT_EQ(slice.lane, static_cast<int32_t>(l));
      while (!open_ends.empty() && open_ends.back() <= slice.begin_ns) open_ends.pop_back();
      if (!open_ends.empty()) {
        EXPECT_LE(slice.end_ns, open_ends.back()) << zone_info(slice.zone).name;
      }
      open_ends.push_back(slice.end_ns);
      covered.push_back({slice.begin_ns, slice.end_ns});
      self += slice.self_ns;
      EXPECT_GE(slice.self_ns, 0);
    }
    EXPECT_EQ(self, total(make_interval_set(covered)));
  }
}

class MadeRuns : public testing::TestWithParam<MadeRun> {};

TEST_P(MadeRuns, AreWholeAndConsistent) {
  const MadeRun run = GetParam();
  const Capture capture = make_made_capture(run);
  const Timeline t = make_timeline(capture);
  expect_nested(t);
  const int num_steps = run.num_prefill_steps + run.num_decode_steps;
  ASSERT_EQ(t.steps.size(), static_cast<std::size_t>(num_steps));
  for (std::size_t s = 1; s < t.steps.size(); ++s) EXPECT_LE(t.steps[s - 1].end_ns, t.steps[s].begin_ns);
  const auto num_exchanges = static_cast<std::size_t>(num_steps * run.num_layers * (run.world_size - 1));
  EXPECT_EQ(t.flows.size(), num_exchanges) << "every dispatch has its arrow to the experts and back";
  EXPECT_EQ(t.messages.size(), 2 * num_exchanges);
  EXPECT_EQ(t.num_unpaired, 0);
  EXPECT_EQ(t.num_causality_violations, 0) << "worst " << t.worst_violation_ns << " ns";
  std::set<uint64_t> ids;
  for (const Flow& flow : t.flows) EXPECT_TRUE(ids.insert(flow.id).second);
  for (const Message& message : t.messages) EXPECT_GE(message.receive_end_ns + 1, message.send_begin_ns);
}

TEST_P(MadeRuns, DivideEveryWindowToTheNanosecond) {
  const Capture capture = make_made_capture(GetParam());
  const Timeline t = make_timeline(capture);
  const std::vector<RankActivity> activity = find_activity(t, GetParam().world_size);
  for (const StepInfo& step : t.steps) {
    EXPECT_GT(break_down(activity[0], {step.begin_ns, step.end_ns}).computing, 0);
    for (const RankActivity& rank : activity) {
      const Breakdown b = break_down(rank, {step.begin_ns, step.end_ns});
      EXPECT_EQ(b.window, step.end_ns - step.begin_ns);
      EXPECT_EQ(b.computing + b.exposed + b.free, b.window);
      EXPECT_EQ(b.overlapped + b.exposed, b.communication);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, MadeRuns,
                         testing::Values(MadeRun{.world_size = 1}, MadeRun{}, MadeRun{.world_size = 5, .num_layers = 3},
                                         MadeRun{.clock_offset_ns = 5e9, .clock_drift = 40e-6, .clock_bound_ns = 10},
                                         MadeRun{.clock_offset_ns = -7e12, .clock_drift = -50e-6, .clock_bound_ns = 10},
                                         MadeRun{.slow_rank = 2, .slow_factor = 7}));

TEST(Timeline, ClocksLeftUnalignedAreFoundOut) {
  Capture capture = make_made_capture({.clock_offset_ns = 5e6});
  for (RankCapture& rank : capture.ranks) rank.alignment = {};
  const Timeline t = make_timeline(capture);
  EXPECT_GT(t.num_causality_violations, 0);
  EXPECT_GT(t.worst_violation_ns, 4'000'000);
}

TEST(Timeline, SeesARequestFromArrivalToFinish) {
  const Timeline t = make_timeline(make_made_capture());
  ASSERT_EQ(t.requests.size(), 1U);
  const RequestInfo& request = t.requests[0];
  ASSERT_TRUE(request.arrival_ns && request.queued_ns && request.first_scheduled_ns && request.first_token_ns &&
              request.finished_ns);
  EXPECT_EQ(*request.queued_ns - *request.arrival_ns, 20'000);
  EXPECT_EQ(request.num_prompt, 48);
  EXPECT_EQ(request.steps.size(), t.steps.size());
  EXPECT_EQ(request.finish_reason, "length");
}

TEST(Timeline, CutsWhatCrossesTheStart) {
  Capture capture = make_made_capture();
  RankCapture& rank = capture.ranks[0];
  const Timeline whole = make_timeline(capture);
  rank.begin += 200'000;  // ticks of half a nanosecond: into the first steps
  for (RankCapture& other : capture.ranks) other.begin = rank.begin;
  const Timeline cut = make_timeline(capture);
  expect_nested(cut);
  EXPECT_LT(cut.steps.size(), whole.steps.size()) << "a step that began before is none of this capture's";
  EXPECT_EQ(cut.end_ns, whole.end_ns - 100'000);
  for (const Slice& slice : cut.slices) EXPECT_GE(slice.begin_ns, 0);
  EXPECT_FALSE(cut.requests[0].arrival_ns.has_value());
}

TEST(Timeline, AChildThatSticksOutIsCutAndMessagesInFlightGetLanes) {
  Capture capture = make_made_capture({.world_size = 2, .num_prefill_steps = 0, .num_decode_steps = 1});
  RankCapture& rank = capture.ranks[0];
  const uint64_t begin = rank.begin;
  const auto add = [&](Zone zone, uint64_t from, uint64_t to, uint32_t b) {
    rank.threads[0].records.push_back(
        {.begin = begin + from, .end = begin + to, .step = 9, .zone = zone, .layer = 0, .a = 1, .b = b});
  };
  rank.threads[0].records.clear();
  add(Zone::kRouter, 100, 300, 0);
  add(Zone::kGatingTopK, 200, 400, 0);
  add(Zone::kDispatchSend, 100, 300, 1);
  add(Zone::kDispatchSend, 200, 400, 1);
  const Timeline t = make_timeline(capture);
  expect_nested(t);
  int to_rank_1 = 0;
  for (const Lane& lane : t.lanes) to_rank_1 += lane.kind == Lane::Kind::kTransfer && lane.rank == 0 ? 1 : 0;
  EXPECT_EQ(to_rank_1, 2);
}

TEST(Timeline, MicroBatchesOfALayerHaveMessagesAndArrowsOfTheirOwn) {
  test::SmallCapture small(2, 1000);
  small.step(0, Phase::kPrefill, 0, 900, 8, 1);
  for (const uint8_t m : {uint8_t{0}, uint8_t{1}}) {
    const test::SmallCapture::Where where{0, 3, m};
    const uint64_t t = 100 + 300 * m;
    small.exchange(1, where, t, t + 20, t + 200, t + 250, 4);
    small.span(0, Zone::kDispatch, t - 10, t + 5, 4, 1, where).span(1, Zone::kExperts, t + 20, t + 190, 4, 0, where);
    small.span(0, Zone::kCombine, t + 250, t + 260, 4, 8, where);
  }
  const Timeline timeline = make_timeline(small.capture);
  EXPECT_EQ(timeline.num_unpaired, 0);
  ASSERT_EQ(timeline.messages.size(), 4U);
  for (const Message& message : timeline.messages) EXPECT_EQ(message.micro_batch, message.send_begin_ns < 400 ? 0 : 1);
  ASSERT_EQ(timeline.flows.size(), 2U);
  for (const Flow& flow : timeline.flows) {
    for (const int32_t slice : {flow.dispatch, flow.experts, flow.combine})
      EXPECT_EQ(timeline.slices.at(static_cast<std::size_t>(slice)).micro_batch, flow.micro_batch);
  }
  const Exchanges exchanges = find_exchanges(ReportInput(small.capture));
  ASSERT_EQ(exchanges.list.size(), 2U);
  EXPECT_EQ(exchanges.list[1].id, (ExchangeId{0, 3, 1}));
  ASSERT_EQ(exchanges.replies_of(exchanges.list[1]).size(), 1U);
  EXPECT_EQ(exchanges.replies_of(exchanges.list[1])[0].posted_ns, 600);
}

TEST(Breakdown, WaitsInsideAnOperatorAreNotItsTime) {
  Capture capture = make_made_capture({.world_size = 1, .num_prefill_steps = 0, .num_decode_steps = 0});
  RankCapture& rank = capture.ranks[0];
  rank.threads[0].records.clear();
  const auto add = [&](Zone zone, uint64_t from_ns, uint64_t to_ns) {
    rank.threads[0].records.push_back(
        {.begin = rank.begin + 2 * from_ns, .end = rank.begin + 2 * to_ns, .step = 0, .zone = zone});
  };
  add(Zone::kExperts, 0, 1000);  // a bracket of the host: computing only where operators are
  add(Zone::kGroupedGateUp, 100, 900);
  add(Zone::kWaitLock, 300, 400);
  add(Zone::kCombineReceive, 800, 950);
  rank.end = rank.begin + 2 * 1000;
  const Timeline t = make_timeline(capture);
  const Breakdown b = break_down(find_activity(t, 1)[0], {0, 1000});
  EXPECT_EQ(b.computing, 700);
  EXPECT_EQ(b.communication, 150);
  EXPECT_EQ(b.overlapped, 100);
  EXPECT_EQ(b.exposed, 50);
  EXPECT_EQ(b.free, 250);
}

TEST(Zones, AreNamedOnceAndKnowTheirLevel) {
  std::set<std::string> names;
  for (const ZoneInfo& zone : kZones) {
    EXPECT_TRUE(names.insert(zone.name).second) << zone.name;
    if (zone.kind == ZoneKind::kCompute) {
      EXPECT_EQ(zone.level, TraceLevel::kOperators) << zone.name;
    }
    if (zone.kind == ZoneKind::kTransfer) {
      EXPECT_STREQ(zone.b_name, "peer") << zone.name;
    }
  }
}

}  // namespace
}  // namespace ferry
