#include "profiler/recent_activity.h"

#include <gtest/gtest.h>

#include "profiler/recorder.h"
#include "profiler/span.h"

namespace ferry {
namespace {

SpanRecord span_of(Zone zone, uint64_t begin, uint64_t end, uint32_t a = 0, uint32_t b = 0) {
  return {.begin = begin, .end = end, .zone = zone, .a = a, .b = b};
}

TEST(RecentActivity, SumsUpWhatEndedInTheWindow) {
  const std::vector<SpanRecord> records = {
      span_of(Zone::kStep, 500, 900, 7, pack_plan(Phase::kDecode, 7)),     // over before
      span_of(Zone::kStep, 900, 1300, 30, pack_plan(Phase::kPrefill, 1)),  // of which 100 ticks are before
      span_of(Zone::kStep, 1300, 1500, 4, pack_plan(Phase::kDecode, 3)),
      span_of(Zone::kDraft, 1450, 1500),
      span_of(Zone::kStep, 1500, 1700, 6, pack_plan(Phase::kDecode, 3)),
      span_of(Zone::kStep, 1900, 2100, 6, pack_plan(Phase::kDecode, 3)),  // over behind
      span_of(Zone::kCoreWait, 1500, 1700, 250),
      span_of(Zone::kNotRunning, 1720, 1820),
  };
  const RecentActivity activity = summarize(records, 1000, 2000, 1e6);  // a tick is a millisecond
  EXPECT_DOUBLE_EQ(activity.window_s, 1);
  const auto& decode = activity.by_phase[static_cast<std::size_t>(Phase::kDecode)];
  EXPECT_EQ(decode.steps, 2);
  EXPECT_EQ(decode.rows, 10);
  EXPECT_EQ(decode.sequences, 6);
  EXPECT_DOUBLE_EQ(decode.seconds, 0.4);
  EXPECT_DOUBLE_EQ(activity.by_phase[static_cast<std::size_t>(Phase::kPrefill)].seconds, 0.3);
  EXPECT_EQ(activity.by_phase[static_cast<std::size_t>(Phase::kMixed)].steps, 0);
  EXPECT_DOUBLE_EQ(activity.draft_s, 0.05);
  EXPECT_DOUBLE_EQ(activity.core_wait_s, 250e-6);
  EXPECT_DOUBLE_EQ(activity.not_running_s, 0.1);
}

TEST(RecentActivity, TellsWorkersApart) {
  std::vector<SpanRecord> records;
  for (const uint32_t rank : {2U, 1U, 2U}) {
    records.push_back(span_of(Zone::kWaitCombine, 140, 150, 0, rank));
    records.push_back(span_of(Zone::kCombineReceive, 120, 150, 40, rank));
    records.push_back(span_of(Zone::kDispatchSend, 120, 150, 20, rank));
    records.push_back(span_of(Zone::kRankRows, 150, 150, 5, rank));
  }
  const RecentActivity activity = summarize(records, 100, 200, 1e9);
  ASSERT_EQ(activity.peers.size(), 2U);
  EXPECT_EQ(activity.peers[0].rank, 1);
  const RecentActivity::Peer& second = activity.peers[1];
  EXPECT_EQ(second.rank, 2);
  EXPECT_EQ(second.exchanges, 2);
  EXPECT_EQ(second.rows, 10);
  EXPECT_EQ(second.bytes_out, 40);
  EXPECT_EQ(second.bytes_in, 80);
  EXPECT_DOUBLE_EQ(second.round_trip_s, 60);
  EXPECT_DOUBLE_EQ(second.wait_s, 20);
}

TEST(RecentActivity, AStepOfNoKnownPhaseIsLeftOut) {
  const std::vector<SpanRecord> records = {span_of(Zone::kStep, 110, 120, 1, 0xff000001)};
  for (const auto& steps : summarize(records, 100, 200, 1).by_phase) EXPECT_EQ(steps.steps, 0);
}

class LookBack : public testing::Test {
 protected:
  void SetUp() override {
    recorder().register_thread("test");
    recorder().set_idle_level(TraceLevel::kSteps);
  }
  void TearDown() override { recorder().set_idle_level(TraceLevel::kOff); }
};

TEST_F(LookBack, ReadsTheRings) {
  const uint64_t now = now_ticks();
  record_span(Zone::kStep, now, now, 3, pack_plan(Phase::kMixed, 2));
  const RecentActivity activity = look_back(recorder(), 1000);
  EXPECT_GE(activity.by_phase[static_cast<std::size_t>(Phase::kMixed)].rows, 3);
  EXPECT_GT(activity.window_s, 0);
}

TEST_F(LookBack, OnlyAsFarAsTheRingsReach) {
  const uint64_t first = now_ticks();
  for (std::size_t i = 0; i < Recorder::kRingRecords + 100; ++i) {
    const uint64_t now = now_ticks();
    record_span(Zone::kStep, now, now, 1, pack_plan(Phase::kDecode, 1));
  }
  const double seconds_since_first = static_cast<double>(now_ticks() - first) * recorder().ticks().ns_per_tick * 1e-9;
  const RecentActivity activity = look_back(recorder(), seconds_since_first + 1000);
  EXPECT_LT(activity.window_s, seconds_since_first + 500) << "as if the ring held what was overwritten";
  EXPECT_GE(activity.by_phase[static_cast<std::size_t>(Phase::kDecode)].steps, int64_t{Recorder::kRingRecords} - 1);
}

TEST_F(LookBack, SaysThatNothingIsRecorded) {
  recorder().set_idle_level(TraceLevel::kOff);
  EXPECT_EQ(look_back(recorder(), 5).window_s, 0);
}

}  // namespace
}  // namespace ferry
