#include "profiler/report/critical_path/critical_path.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "profiler/capture_merge.h"
#include "profiler/report/timeline/step_slices.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using Where = test::SmallCapture::Where;

/// The pieces of a step in a line: "0 MatMul.q_proj 100, 1 message<0 20, …": rank, what and ns.
std::string path_of(const ReportInput& input, int32_t step = 0) {
  std::string line;
  for (const PathPiece& piece : input.critical_path) {
    if (piece.step != step) continue;
    std::string what =
        piece.slice < 0 ? "-" : zone_info(input.timeline.slices[static_cast<std::size_t>(piece.slice)].zone).name;
    if (piece.kind == PathKind::kMessage) {
      const Message& message = input.timeline.messages[static_cast<std::size_t>(piece.message)];
      what = "message " + std::to_string(message.source) + ">" + std::to_string(message.target);
    } else if (piece.kind == PathKind::kNotRunning) {
      what = "not running";
    }
    line += line.empty() ? "" : ", ";
    line += std::to_string(piece.rank) + " " + what + " " + std::to_string(piece.end_ns - piece.begin_ns);
  }
  return line;
}

/// What must hold of any capture whatever.
void expect_exact(const ReportInput& input) {
  const std::vector<PathPiece>& path = input.critical_path;
  const Timeline& timeline = input.timeline;
  auto piece = path.begin();
  for (std::size_t s = 0; s < timeline.steps.size(); ++s) {
    int64_t at_ns = timeline.steps[s].begin_ns;
    for (; piece != path.end() && piece->step == static_cast<int32_t>(s); ++piece) {
      ASSERT_EQ(piece->begin_ns, at_ns) << "step " << s;
      ASSERT_GT(piece->end_ns, piece->begin_ns);
      ASSERT_GE(piece->rank, 0);
      ASSERT_LT(piece->rank, static_cast<int32_t>(input.capture.ranks.size()));
      ASSERT_EQ(piece->message >= 0, piece->kind == PathKind::kMessage);
      ASSERT_LT(piece->slice, static_cast<int32_t>(timeline.slices.size()));
      at_ns = piece->end_ns;
    }
    ASSERT_EQ(at_ns, timeline.steps[s].end_ns) << "step " << s;
  }
  ASSERT_EQ(piece, path.end());
}

int64_t ns_of(const ReportInput& input, int32_t rank, PathKind kind) {
  int64_t ns = 0;
  for (const PathPiece& piece : input.critical_path)
    ns += piece.rank == rank && piece.kind == kind ? piece.end_ns - piece.begin_ns : 0;
  return ns;
}

/// What a worker does with rows: waits for them from `waits_ns` on, works, replies.
struct Answer {
  uint64_t waits = 0, arrived = 0, replied = 0;
};

/// Rows to a worker, its answer, and the coordinator's wait for that from `wait` to `seen`, after which it notes the receive.
void exchange(test::SmallCapture& small, int32_t worker, Where where, uint64_t posted, Answer answer, uint64_t wait,
              uint64_t seen) {
  const auto w = static_cast<uint32_t>(worker);
  small.span(worker, Zone::kWaitDispatch, answer.waits, answer.arrived, 0, 0, where);
  small.exchange(worker, where, posted, answer.arrived, answer.replied, seen + 20, 8);
  small.span(0, Zone::kWaitCombine, wait, seen, 0, w, where);
}

/// A step 1000…9000 of one layer: attention until 2000, rows to both workers at 2000 and 2100, a shared expert until 3000,
/// and then waits for replies in the order of ranks; sampling in the last 500 ns. Rows and replies are under way for 200.
struct TwoReplies {
  TwoReplies() : small(3, 20'000) {
    small.step(7, Phase::kDecode, 1000, 9000, 1, 1);
    small.span(0, Zone::kAttention, 1000, 2000, 1, 1, {7, 0});
    small.span(0, Zone::kDispatch, 2000, 2100, 8, 1, {7, 0}).span(0, Zone::kDispatch, 2100, 2200, 8, 2, {7, 0});
    small.span(0, Zone::kSharedDown, 2200, 3000, 1, 0, {7, 0});
    small.span(0, Zone::kSample, 8500, 9000, 1, 0, {7, kNoLayer});
  }
  /// Replies are posted at these times, and the combination fills what is left until 8500.
  TwoReplies& replies(uint64_t one, uint64_t two) {
    const uint64_t seen_one = std::max<uint64_t>(3000, one + 200), seen_two = std::max(seen_one, two + 200);
    exchange(small, 1, {7, 0}, 2000, {500, 2200, one}, 3000, seen_one);
    exchange(small, 2, {7, 0}, 2100, {500, 2300, two}, seen_one, seen_two);
    small.span(0, Zone::kCombine, seen_two, 8500, 1, 8, {7, 0});
    return *this;
  }
  test::SmallCapture small;
};

TEST(CriticalPathTest, ASlowRankThatIsLastIsOnThePath) {
  const ReportInput input(TwoReplies().replies(3000, 7000).small.capture);
  EXPECT_EQ(path_of(input),
            "0 FusedInferAttentionScore 1000, 0 MoeDistributeDispatch 100, 2 message 0>2 200, 2 GroupedMatmulSwiglu 4700, "
            "0 message 2>0 200, 0 MoeTokenUnpermute 1300, 0 ArgMax.sample 500");
  expect_exact(input);
}

TEST(CriticalPathTest, ASlowRankThatIsNotLastIsNot) {
  const ReportInput input(TwoReplies().replies(7000, 6000).small.capture);
  EXPECT_EQ(path_of(input),
            "0 FusedInferAttentionScore 1000, 1 message 0>1 200, 1 GroupedMatmulSwiglu 4800, 0 message 1>0 200, "
            "0 MoeTokenUnpermute 1300, 0 ArgMax.sample 500");
}

TEST(CriticalPathTest, AWaitThatOnlyTakesInWhatWasThereDoesNotLeadAway) {
  TwoReplies run;
  exchange(run.small, 1, {7, 0}, 2000, {500, 2200, 7000}, 3000, 7200);
  exchange(run.small, 2, {7, 0}, 2100, {500, 2300, 4000}, 7200, 7250);  // its reply was there by 4200
  run.small.span(0, Zone::kCombine, 7250, 8500, 1, 8, {7, 0});
  for (const int layer : {1, 2, 3}) {  // what replies of rank 2 usually take, of another step
    const auto t = static_cast<uint64_t>(10'000 + 1000 * layer);
    exchange(run.small, 2, {8, static_cast<int16_t>(layer)}, t, {t - 100, t + 200, t + 500}, t + 100, t + 700);
  }
  const ReportInput input(run.small.capture);
  EXPECT_EQ(path_of(input),
            "0 FusedInferAttentionScore 1000, 1 message 0>1 200, 1 GroupedMatmulSwiglu 4800, 0 message 1>0 200, "
            "0 wait.combine 50, 0 MoeTokenUnpermute 1250, 0 ArgMax.sample 500");
}

TEST(CriticalPathTest, AMessageThatWasOnItsWayIsThereAfterItsUsualTime) {
  TwoReplies run;
  exchange(run.small, 1, {7, 0}, 2000, {500, 2200, 2900}, 3000, 3150);   // begins to wait 100 late, and takes 50 to take it in
  exchange(run.small, 1, {7, 1}, 4000, {3000, 4200, 4900}, 4100, 5100);  // what such a reply takes
  run.small.span(0, Zone::kCombine, 5100, 8500, 1, 8, {7, 1}).span(0, Zone::kRouter, 3150, 4100, 1, 8, {7, 1});
  const ReportInput input(run.small.capture);
  EXPECT_EQ(path_of(input),
            "0 FusedInferAttentionScore 1000, 1 message 0>1 200, 1 GroupedMatmulSwiglu 700, 0 message 1>0 200, "
            "0 wait.combine 50, 0 MatMul.router 850, 1 message 0>1 200, 1 GroupedMatmulSwiglu 700, 0 message 1>0 200, "
            "0 MoeTokenUnpermute 3400, 0 ArgMax.sample 500");
}

TEST(CriticalPathTest, ASlowLinkIsOnThePath) {
  TwoReplies run;
  exchange(run.small, 1, {7, 0}, 2000, {500, 2200, 3500}, 3000, 3700);
  exchange(run.small, 2, {7, 0}, 2100, {500, 5100, 5900}, 3700, 8000);
  run.small.span(0, Zone::kCombine, 8000, 8500, 1, 8, {7, 0});
  const ReportInput input(run.small.capture);
  EXPECT_EQ(path_of(input),
            "0 FusedInferAttentionScore 1000, 0 MoeDistributeDispatch 100, 2 message 0>2 3000, 2 GroupedMatmulSwiglu 800, "
            "0 message 2>0 2100, 0 MoeTokenUnpermute 500, 0 ArgMax.sample 500");
}

TEST(CriticalPathTest, ASlowOperatorOfTheCoordinatorHidesItsWorkers) {
  TwoReplies run;
  exchange(run.small, 1, {7, 0}, 2000, {500, 2200, 2500}, 3000, 3000);
  exchange(run.small, 2, {7, 0}, 2100, {500, 2300, 2600}, 3000, 3000);
  run.small.span(0, Zone::kCombine, 3000, 8500, 1, 8, {7, 0});
  const ReportInput input(run.small.capture);
  EXPECT_EQ(path_of(input),
            "0 FusedInferAttentionScore 1000, 0 MoeDistributeDispatch 100, 0 MoeDistributeDispatch 100, "
            "0 MatMul.shared_down 800, 0 MoeTokenUnpermute 5500, 0 ArgMax.sample 500");
}

TEST(CriticalPathTest, AMessageThatOnlyOneEndKnowsLeavesTheWait) {
  for (const Zone lost : {Zone::kCombineSend, Zone::kCombineReceive, Zone::kDispatchSend, Zone::kDispatchReceive}) {
    TwoReplies run;
    run.replies(3000, 7000);
    for (RankCapture& rank : run.small.capture.ranks)
      std::erase_if(rank.threads[0].records, [&](const SpanRecord& record) { return record.zone == lost; });
    const ReportInput input(run.small.capture);
    expect_exact(input);
    const bool is_reply = lost == Zone::kCombineSend || lost == Zone::kCombineReceive;
    EXPECT_EQ(ns_of(input, 0, PathKind::kWait), is_reply ? 4200 : 0) << zone_info(lost).name;
    EXPECT_EQ(ns_of(input, 2, PathKind::kWait), is_reply ? 0 : 1300) << "from the step's begin until rows came";
    EXPECT_EQ(ns_of(input, 2, PathKind::kCompute), is_reply ? 0 : 4700);
  }
}

TEST(CriticalPathTest, WhoIsStoppedIsSeenWhereItHeldTheOthersUp) {
  TwoReplies run;
  run.replies(3000, 7000);
  for (RankCapture& rank : run.small.capture.ranks)
    rank.threads.push_back({.name = "watch", .tid = 900, .num_lost = 0, .records = {}});
  auto& watched = run.small.capture.ranks[2].threads[1].records;
  watched.push_back({.begin = 4000, .end = 6000, .zone = Zone::kNotRunning});
  watched.push_back({.begin = 6900, .end = 7050, .zone = Zone::kNotRunning});
  run.small.capture.ranks[0].threads[1].records.push_back({.begin = 8000, .end = 8300, .zone = Zone::kNotRunning});
  run.small.capture.ranks[1].threads[1].records.push_back({.begin = 2300, .end = 8900, .zone = Zone::kNotRunning});
  const ReportInput input(run.small.capture);
  EXPECT_EQ(path_of(input),
            "0 FusedInferAttentionScore 1000, 0 MoeDistributeDispatch 100, 2 message 0>2 200, 2 GroupedMatmulSwiglu 1700, "
            "2 not running 2000, 2 GroupedMatmulSwiglu 900, 2 not running 100, 2 not running 50, 0 message 2>0 150, "
            "0 MoeTokenUnpermute 800, 0 not running 300, 0 MoeTokenUnpermute 200, 0 ArgMax.sample 500");
  expect_exact(input);
}

/// Its second micro-batch's rows come while the worker computes the first's.
TEST(CriticalPathTest, AWorkerThatIsBusyWithOneMicroBatchIsLateWithTheNext) {
  test::SmallCapture small(2, 20'000);
  small.step(7, Phase::kPrefill, 1000, 9000, 16, 1);
  small.span(0, Zone::kRouter, 1000, 2000, 8, 0, {7, 0, 0}).span(0, Zone::kRouter, 2000, 3000, 8, 0, {7, 0, 1});
  exchange(small, 1, {7, 0, 0}, 2000, {500, 2200, 6000}, 3000, 6200);
  exchange(small, 1, {7, 0, 1}, 3000, {6100, 6150, 8000}, 6200, 8200);
  small.span(1, Zone::kWaitSend, 6000, 6080, 0, 0, {7, 0, 0});
  small.span(0, Zone::kSample, 8200, 9000, 1, 0, {7, kNoLayer});
  const ReportInput input(small.capture);
  EXPECT_EQ(path_of(input),
            "0 MatMul.router 1000, 1 message 0>1 200, 1 GroupedMatmulSwiglu 3800, 1 message 1>0 80, 1 - 20, "
            "1 wait.dispatch 50, 1 GroupedMatmulSwiglu 1850, 0 message 1>0 200, 0 ArgMax.sample 800");
  expect_exact(input);
}

TEST(CriticalPathTest, ADeviceTimeCountsAndItsHostsWhereItHasNothingToDo) {
  const ReportInput input(test::device_capture().capture);
  expect_exact(input);
  EXPECT_EQ(path_of(input),
            "0 step 100, 0 Add 100, 0 MatMul.o_proj 200, 0 Add 100, 0 step 500, 0 Add 500, 0 MatMul.o_proj 1500, 0 Add 500, "
            "0 step 500, 0 ArgMax.sample 100, 0 wait.device 900, 0 Add 1000, 0 Memcpy 200, 0 wait.device 800, "
            "0 ArgMax.sample 500, 0 step 500");
  EXPECT_EQ(ns_of(input, 0, PathKind::kCompute), 500 + 1500 + 500 + 1000 + 200 + 600) << "the device, and sampling";
}

TEST(CriticalPathTest, PoolThreadsAndOtherCoordinatorsRowsStandBeside) {
  TwoReplies run;
  run.replies(3000, 7000);
  // A pool thread of the worker that is last, and of the coordinator.
  for (const std::size_t rank : {0U, 2U}) {
    run.small.capture.ranks[rank].threads.push_back({.name = "pool 1", .tid = 901, .num_lost = 0, .records = {}});
    run.small.capture.ranks[rank].threads[1].records.push_back(
        {.begin = 1000, .end = 8900, .step = 7, .zone = Zone::kPoolTask, .layer = 0, .a = 1});
  }
  std::swap(run.small.capture.ranks[2].threads[0], run.small.capture.ranks[2].threads[1]);
  const std::string alone = path_of(ReportInput(run.small.capture));
  EXPECT_EQ(alone, path_of(ReportInput(TwoReplies().replies(3000, 7000).small.capture)));
  // Rows of the same exchange of another coordinator, rank 1 of this job, which rank 2 answers at another time.
  std::swap(run.small.capture.ranks[2].threads[0], run.small.capture.ranks[2].threads[1]);
  run.small.span(2, Zone::kDispatchReceive, 200, 700, 10, 1, {7, 0}).span(1, Zone::kDispatchSend, 100, 800, 10, 2, {7, 0});
  run.small.span(2, Zone::kCombineSend, 8000, 8100, 10, 1, {7, 0}).span(1, Zone::kCombineReceive, 100, 8100, 10, 2, {7, 0});
  const ReportInput input(run.small.capture);
  EXPECT_EQ(path_of(input), alone);
}

TEST(CriticalPathTest, AThreadsShareOfAnOperatorIsTheOperator) {
  test::SmallCapture small(1, 20'000);
  small.step(7, Phase::kDecode, 1000, 9000, 1, 1);
  small.span(0, Zone::kRouter, 1000, 6000, 8, 0, {7, 0}).span(0, Zone::kSample, 6000, 9000, 1, 0, {7, kNoLayer});
  const std::string alone = path_of(ReportInput(small.capture));
  small.span(0, Zone::kPoolTask, 1500, 5000, 3, 0, {7, 0}).span(0, Zone::kPoolTask, 6000, 9000, 3, 0, {7, kNoLayer});
  const ReportInput input(small.capture);
  EXPECT_EQ(path_of(input), alone);
  int64_t router_ns = 0;
  for_each_step_slice(input.timeline, [&](std::size_t, const Slice& slice) {
    EXPECT_NE(slice.zone, Zone::kPoolTask);
    router_ns += slice.zone == Zone::kRouter ? slice.self_ns : 0;
  });
  EXPECT_EQ(router_ns, 5000);
}

TEST(CriticalPathTest, AWorkerThatServesAnotherCoordinatorFirstIsLateForThat) {
  test::SmallCapture small(2, 20'000);
  small.step(7, Phase::kDecode, 1000, 9000, 1, 1);
  small.span(0, Zone::kRouter, 1000, 2000, 8, 0, {7, 0});
  const uint32_t other = 5;  // whose ranks are not in this capture
  small.span(1, Zone::kWaitDispatch, 500, 1500, 0, other, {7, 0}).span(1, Zone::kGroupedGateUp, 1500, 5000, 8, 1, {7, 0});
  exchange(small, 1, {7, 0}, 2000, {5000, 5010, 8000}, 2000, 8200);
  small.span(0, Zone::kSample, 8200, 9000, 1, 0, {7, kNoLayer});
  const ReportInput input(small.capture);
  expect_exact(input);
  EXPECT_EQ(
      path_of(input),
      "1 wait.dispatch 500, 1 GroupedMatmulSwiglu 3500, 1 wait.dispatch 10, 1 GroupedMatmulSwiglu 2990, 0 message 1>0 200, "
      "0 ArgMax.sample 800");
}

TEST(CriticalPathTest, ClocksThatDisagreeCannotLeadInCircles) {
  for (const int64_t off_ns : {-5000, -2000, -300, 300, 2000, 5000}) {
    TwoReplies run;
    run.replies(3000, 7000);
    run.small.capture.ranks[2].alignment.offset_ns += static_cast<double>(off_ns);
    run.small.capture.ranks[2].alignment.bound_ns = 5000;
    const ReportInput input(run.small.capture);
    expect_exact(input);
    const bool is_near = std::abs(off_ns) <= 2000;
    EXPECT_TRUE(!is_near || ns_of(input, 2, PathKind::kCompute) > 0) << off_ns;
  }
}

TEST(CriticalPathTest, TwoRanksThatWaitForWhatNeitherHasSentYetEndTheSearch) {
  test::SmallCapture small(2, 20'000);
  small.step(7, Phase::kDecode, 1000, 9000, 1, 1);
  exchange(small, 1, {7, 0}, 9100, {500, 9200, 9500}, 1000, 9000);
  const ReportInput input(small.capture);
  EXPECT_EQ(path_of(input), "0 wait.combine 8000");
}

TEST(CriticalPathTest, CoversEveryStepOfMadeCaptures) {
  for (const MadeRun& run : {MadeRun{}, MadeRun{.world_size = 1}, MadeRun{.world_size = 5, .slow_rank = 4, .slow_factor = 6},
                             MadeRun{.world_size = 4, .hot_expert = 3}, MadeRun{.far_rank = 2, .far_us = 40},
                             MadeRun{.world_size = 4, .clock_offset_ns = 3e6, .clock_drift = 2e-5, .clock_bound_ns = 9000}}) {
    Capture capture = make_made_capture(run);
    expect_exact(ReportInput(capture));
    for (RankCapture& rank : capture.ranks) rank.alignment.offset_ns += (rank.rank % 2 == 1 ? 1 : -1) * rank.alignment.bound_ns;
    expect_exact(ReportInput(capture));
  }
  std::vector<Capture> runs{make_made_capture(), make_made_capture({.world_size = 4, .slow_rank = 1, .slow_factor = 3})};
  const ReportInput merged(merge_captures(std::move(runs)));
  expect_exact(merged);
  EXPECT_GT(ns_of(merged, 4, PathKind::kCompute), 0) << "the second run's worker, of its own coordinator's steps";
}

TEST(CriticalPathTest, CoversEveryStepWhateverIsMissingOrOff) {
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    Capture capture = make_made_capture({.world_size = 4, .num_decode_steps = 2, .slow_rank = i % 4, .slow_factor = 4});
    for (RankCapture& rank : capture.ranks) {
      rank.alignment.offset_ns += std::uniform_int_distribution<int>(-40'000, 40'000)(random);
      for (SpanRecord& record : rank.threads[0].records) {
        if (random() % 10 == 0) record.b = random() % 4;
        if (random() % 20 == 0) record.micro_batch ^= 1;
        if (random() % 20 == 0) record.end = record.begin;
        if (random() % 20 == 0) record.zone = Zone::kNotRunning;
        if (random() % 40 == 0) record.end += 30'000;
      }
      std::erase_if(rank.threads[0].records, [&](const SpanRecord&) { return random() % 10 == 0; });
    }
    expect_exact(ReportInput(capture));
  }
}

TEST(CriticalPathTest, WithoutStepsOrSlicesThereIsNone) {
  EXPECT_TRUE(ReportInput(test::SmallCapture(2, 1000).capture).critical_path.empty());
  test::SmallCapture bare(1, 1000);
  bare.step(0, Phase::kDecode, 100, 100, 1, 1).step(1, Phase::kDecode, 200, 300, 1, 1);
  const ReportInput input(bare.capture);
  expect_exact(input);
  EXPECT_EQ(path_of(input, 0), "") << "a step without length";
  EXPECT_EQ(path_of(input, 1), "0 step 100");
}

}  // namespace
}  // namespace ferry
