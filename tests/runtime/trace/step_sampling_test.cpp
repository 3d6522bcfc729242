#include "runtime/trace/step_sampling.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <vector>

#include "profiler/recorder.h"
#include "profiler/span.h"
#include "runtime/base/check.h"
#include "runtime/engine.h"
#include "runtime/trace/step_marks.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

// What is kept of the steps of a process that is alone; ranks are for the end-to-end tests.

namespace ferry {
namespace {

class StepSamplingTest : public testing::Test {
 protected:
  StepSamplingTest() {
    test::TinyModel().write(dir_.path());
    options_.model = dir_.path();
    options_.threads = 1;
    options_.memory_bytes = int64_t{64} << 20;
    cluster_.emplace(options_);
    engine_.emplace(options_, *cluster_);
    recorder().register_thread("engine");
    recorder().set_idle_level(TraceLevel::kSteps);
  }
  ~StepSamplingTest() override {
    recorder().set_idle_level(TraceLevel::kOff);
    check_context() = {};
  }

  TraceSession& session() { return engine_->trace(); }

  /// Does as a coordinator does; `seconds` is what the step says that it took.
  void step(double seconds = 0.010) {
    compute(seconds);
    session().work(true);
    take();
  }
  void compute(double seconds) {
    check_context().step = next_;
    session().begin_step(next_);
    const uint64_t begin = now_ticks();
    { const Span router(Zone::kRouter, 4); }
    const uint64_t end = now_ticks();
    record_span(Zone::kStep, begin, end, 4, pack_plan(Phase::kDecode, 4));
    session().end_step(
        {.step = next_, .begin = begin, .end = end, .seconds = seconds, .num_rows = 4, .num_sequences = 4, .num_keys = 40});
    ++next_;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  void take() {
    if (std::optional<KeptStep> kept = session().take_kept_step()) kept_.push_back(std::move(*kept));
  }
  static std::map<Zone, std::vector<uint32_t>> steps_by_zone(const KeptStep& kept) {
    std::map<Zone, std::vector<uint32_t>> steps;
    for (const ThreadCapture& thread : kept.capture.ranks.at(0).threads) {
      for (const SpanRecord& record : thread.records) steps[record.zone].push_back(record.step);
    }
    return steps;
  }

  std::vector<KeptStep> kept_;
  int64_t next_ = 0;

 private:
  test::TempFolder dir_;
  EngineOptions options_;
  std::optional<Cluster> cluster_;
  std::optional<Engine> engine_;
};

TEST_F(StepSamplingTest, OneStepInSoManyIsKeptInDetailAndByItself) {
  session().sample_steps(10);
  steps(35);
  ASSERT_EQ(kept_.size(), 4U);
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    EXPECT_EQ(kept_[i].why, KeptFor::kSample);
    EXPECT_EQ(kept_[i].facts.step, static_cast<int64_t>(10 * i));
    EXPECT_EQ(kept_[i].capture.info.level, TraceLevel::kOperators);
    const auto zones = steps_by_zone(kept_[i]);
    EXPECT_EQ(zones.at(Zone::kRouter), std::vector<uint32_t>{static_cast<uint32_t>(10 * i)});
    EXPECT_EQ(zones.at(Zone::kStep), std::vector<uint32_t>{static_cast<uint32_t>(10 * i)});
  }
}

TEST_F(StepSamplingTest, WithoutItNothingIsKept) {
  steps(200);
  EXPECT_TRUE(kept_.empty());
}

TEST_F(StepSamplingTest, AStepThatTookLongIsKeptWithThoseBeforeIt) {
  session().sample_steps(1'000'000);
  steps(60);
  kept_.clear();
  step(0.100);
  step();
  ASSERT_EQ(kept_.size(), 1U);
  EXPECT_EQ(kept_[0].why, KeptFor::kLong);
  EXPECT_EQ(kept_[0].facts.step, 60);
  const auto zones = steps_by_zone(kept_[0]);
  EXPECT_EQ(zones.at(Zone::kStep), (std::vector<uint32_t>{52, 53, 54, 55, 56, 57, 58, 59, 60}));
  EXPECT_EQ(zones.count(Zone::kRouter), 0U) << "it was nobody's turn";
}

TEST_F(StepSamplingTest, StepsThatComeWhileOneWaitsForItsTurnAreCounted) {
  session().sample_steps(100);
  steps(90);
  EXPECT_EQ(session().take_left_out(), CountsByReason{});
  kept_.clear();
  compute(0.100);
  compute(0.900);  // long enough to be kept within five seconds of another
  step();
  step();
  ASSERT_EQ(kept_.size(), 1U);
  EXPECT_EQ(kept_[0].facts.step, 90);
  EXPECT_EQ(session().take_left_out(), (CountsByReason{0, 0, 1, 0, 0}));
  EXPECT_EQ(session().take_left_out(), CountsByReason{}) << "once";
}

TEST_F(StepSamplingTest, ASampleThatGivesWayIsCounted) {
  session().sample_steps(100);
  steps(100);
  kept_.clear();
  compute(0.010);
  compute(0.100);
  step();
  step();
  ASSERT_EQ(kept_.size(), 1U);
  EXPECT_EQ(kept_[0].why, KeptFor::kLong);
  EXPECT_EQ(session().take_left_out(), (CountsByReason{1, 0, 0, 0, 0}));
}

TEST_F(StepSamplingTest, AChangeOfAWorkerIsKeptWithItsReason) {
  session().sample_steps(1'000'000);
  steps(20);
  kept_.clear();
  session().note({.rank = Rank{2}, .from = WorkerState::kHealthy, .to = WorkerState::kMasked, .reason = "left"}, now_ticks());
  steps(2);
  ASSERT_EQ(kept_.size(), 1U);
  EXPECT_EQ(kept_[0].why, KeptFor::kWorkerChange);
  ASSERT_EQ(kept_[0].capture.info.worker_changes.size(), 1U);
  EXPECT_EQ(kept_[0].capture.info.worker_changes[0].reason, "left");
}

TEST_F(StepSamplingTest, ACaptureBesideItKeepsItsLevelAndItsSteps) {
  session().sample_steps(5);
  steps(3);
  session().start({.level = TraceLevel::kSteps, .num_steps = 10});
  steps(12);
  while (session().work(false)) {
  }
  const std::optional<Capture> capture = session().take();
  ASSERT_TRUE(capture);
  std::map<Zone, int> counts;
  for (const ThreadCapture& thread : capture->ranks.at(0).threads) {
    for (const SpanRecord& record : thread.records) ++counts[record.zone];
  }
  EXPECT_EQ(counts[Zone::kStep], 10);
  EXPECT_EQ(counts[Zone::kRouter], 2) << "of steps 5 and 10 alone";
  EXPECT_EQ(kept_.size(), 3U);
}

TEST(StepMarks, TellWhenStepsBegan) {
  StepMarks marks;
  EXPECT_EQ(marks.begin_of(0), UINT64_MAX);
  for (int64_t step = 0; step < 200; ++step) {
    marks.note(step, 1000 + 10 * static_cast<uint64_t>(step));
    marks.note(step, 1005 + 10 * static_cast<uint64_t>(step));
  }
  EXPECT_EQ(marks.begin_of(199), 2990U);
  EXPECT_EQ(marks.begin_of(150), 2500U);
  EXPECT_EQ(marks.begin_of(3), 1000U + 10 * (200 - StepMarks::kMost)) << "the oldest that is known";
  EXPECT_EQ(marks.begin_of(200), UINT64_MAX);
}

TEST(StepMarks, WhatIsOfNoStepStaysFromTheFirstStepOn) {
  RankCapture rank;
  rank.threads.resize(1);
  const auto add = [&](uint64_t begin, uint64_t end, uint32_t step) {
    rank.threads[0].records.push_back({.begin = begin, .end = end, .step = step});
  };
  add(0, 5, kNoStep);   // before it
  add(5, 10, 6);        // of the step before
  add(8, 12, kNoStep);  // reaches into it
  add(10, 20, 7);
  add(14, 15, kNoStep);
  add(20, 30, 8);
  keep_steps_from(7, rank);
  std::vector<uint64_t> begins;
  for (const SpanRecord& record : rank.threads[0].records) begins.push_back(record.begin);
  EXPECT_EQ(begins, (std::vector<uint64_t>{8, 10, 14, 20}));
}

}  // namespace
}  // namespace ferry
