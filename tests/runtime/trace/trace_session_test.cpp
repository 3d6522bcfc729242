#include "runtime/trace/trace_session.h"

#include <gtest/gtest.h>

#include <new>
#include <optional>
#include <system_error>

#include "profiler/recorder.h"
#include "profiler/span.h"
#include "runtime/base/error.h"
#include "runtime/engine.h"
#include "tests/support/allocation_count.h"
#include "tests/support/no_threads.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

// What a capture does when the system has nothing left for it: it ends, and the engine does not hear of it.

namespace ferry {
namespace {

constexpr int64_t kLittle = int64_t{2} << 16;  // bytes at once: for a chunk of spans, but not for those that record() makes

/// Rank 0 of one, whose captures are begun and ended as its coordinator does.
class TraceSessionTest : public testing::Test {
 protected:
  TraceSessionTest() {
    test::TinyModel().write(dir_.path());
    options_.model = dir_.path();
    options_.threads = 1;
    options_.memory_bytes = int64_t{64} << 20;
    cluster_.emplace(options_);
    engine_.emplace(options_, *cluster_);
    recorder().register_thread("engine");
  }
  ~TraceSessionTest() override { recorder().discard(); }

  static void record() {
    for (int64_t i = 0; i < 5000; ++i) {
      const Span span(Zone::kStep, i);
    }
  }

  /// A capture can be begun and comes to an end.
  void expect_next_capture() {
    EXPECT_TRUE(session().is_idle());
    EXPECT_FALSE(recorder().is_capturing());
    EXPECT_FALSE(session().take_complaint()) << "it is told once";
    session().start({});
    record();
    session().stop();
    while (session().work(false)) {
    }
    const std::optional<Capture> capture = session().take();
    ASSERT_TRUE(capture);
    std::size_t num_records = 0;
    for (const ThreadCapture& thread : capture->ranks.at(0).threads) num_records += thread.records.size();
    EXPECT_EQ(num_records, 5000U);
    EXPECT_FALSE(session().take_complaint());
  }

  TraceSession& session() { return engine_->trace(); }

 private:
  test::TempFolder dir_;
  EngineOptions options_;
  std::optional<Cluster> cluster_;
  std::optional<Engine> engine_;
};

TEST_F(TraceSessionTest, AStartThatFailsLeavesNothingBehind) {
  {
    const test::NoThreads no_threads;
    EXPECT_THROW(session().start({}), std::system_error);
    EXPECT_TRUE(session().is_idle());
    EXPECT_FALSE(session().work(true)) << "and it is not tried again";
  }
  expect_next_capture();
}

TEST_F(TraceSessionTest, ADelayedStartThatFailsIsToldAndNoMore) {
  session().start({.delay_steps = 2});
  EXPECT_FALSE(session().work(true));
  {
    const test::NoThreads no_threads;
    EXPECT_NO_THROW(session().work(true));
  }
  EXPECT_TRUE(session().take_complaint());
  expect_next_capture();
}

TEST_F(TraceSessionTest, AStopWithoutMemoryGivesTheCaptureUp) {
  session().start({});
  record();
  {
    const test::LittleMemory little(kLittle);
    EXPECT_THROW(session().stop(), std::bad_alloc);
  }
  EXPECT_TRUE(session().take_complaint());
  expect_next_capture();
}

TEST_F(TraceSessionTest, AnEndWithoutMemoryAfterItsStepsIsToldAndNoMore) {
  session().start({.num_steps = 1});
  record();
  {
    const test::LittleMemory little(kLittle);
    EXPECT_NO_THROW(session().work(true));
  }
  EXPECT_TRUE(session().take_complaint());
  EXPECT_FALSE(session().take());
  expect_next_capture();
}

TEST_F(TraceSessionTest, ASnapshotWithoutMemoryLeavesNothingBehind) {
  recorder().set_idle_level(TraceLevel::kSteps);
  record();
  {
    const test::LittleMemory little(kLittle);
    EXPECT_THROW(session().save_snapshot(), std::bad_alloc);
  }
  expect_next_capture();
  recorder().set_idle_level(TraceLevel::kOff);
}

TEST_F(TraceSessionTest, ACaptureHasTheWorkerChangesOfItsTimeAndNoMoreThanAreAllowed) {
  const auto note = [&](const std::string& reason) {
    session().note({.rank = Rank{3}, .from = WorkerState::kSuspect, .to = WorkerState::kMasked, .reason = reason}, now_ticks());
  };
  note("before");
  session().start({});
  for (std::size_t i = 0; i < kMaxWorkerChanges; ++i) note("early");
  note("last");
  session().stop();
  note("after");
  while (session().work(false)) {
  }
  const std::optional<Capture> capture = session().take();
  ASSERT_TRUE(capture);
  const std::vector<WorkerChangeFacts>& changes = capture->info.worker_changes;
  ASSERT_EQ(changes.size(), kMaxWorkerChanges - 1) << "one is of the time after it, and only so many are known";
  EXPECT_EQ(changes.back().reason, "last");
  EXPECT_EQ(changes.front().reason, "early");
  EXPECT_EQ(changes.back().rank, 3);
  EXPECT_EQ(changes.back().from, "suspect");
  EXPECT_EQ(changes.back().to, "masked");
  EXPECT_TRUE(capture->info.placement.ranks.empty()) << "all experts are its own";
}

}  // namespace
}  // namespace ferry
