#include "profiler/run_account.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "profiler/recorder.h"
#include "profiler/run_watch.h"
#include "profiler/span.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

/// A child that stops this process for `stop`, without help of anything that a stopped process would do.
void be_stopped(std::chrono::milliseconds stop) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    kill(parent, SIGSTOP);
    usleep(static_cast<useconds_t>(std::chrono::microseconds(stop).count()));
    kill(parent, SIGCONT);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
}

/// The longest stop that was recorded; of another zone if there is none.
SpanRecord find_stop_record(const RankCapture& capture) {
  SpanRecord longest{.zone = Zone::kStep};
  for (const ThreadCapture& thread : capture.threads) {
    for (const SpanRecord& record : thread.records) {
      if (record.zone == Zone::kNotRunning && record.end - record.begin >= longest.end - longest.begin) longest = record;
    }
  }
  return longest;
}

class RunWatchTest : public testing::Test {
 protected:
  void SetUp() override { recorder().set_idle_level(TraceLevel::kSteps); }
  void TearDown() override { recorder().set_idle_level(TraceLevel::kOff); }
};

/// A stop of any length is no wait for a core, however long this machine makes the watch wait.
TEST_F(RunWatchTest, NoticesThatTheProcessWasStopped) {
  constexpr std::chrono::hours kStop{1};
  ManualClock clock;
  const RunWatch watch(clock);
  clock.wait_for_sleepers(1);
  const uint64_t before = now_ticks();
  clock.advance(kStop);
  SpanRecord stop;
  eventually(
      [&] {
        stop = find_stop_record(recorder().snapshot());
        return stop.zone == Zone::kNotRunning;
      },
      "the watch to record a stop");
  EXPECT_GE(stop.end, before);
  EXPECT_LE(stop.begin, stop.end);
}

TEST_F(RunWatchTest, ASleepOfItsPeriodIsNoStop) {
  ManualClock clock;
  {
    const RunWatch watch(clock);
    for (int look = 0; look < 20; ++look) clock.advance_to_next_wake();
    clock.wait_for_sleepers(1);
    EXPECT_NE(find_stop_record(recorder().snapshot()).zone, Zone::kNotRunning);
  }
}

TEST_F(RunWatchTest, HardlyWakesWhileNothingIsRecorded) {
  recorder().set_idle_level(TraceLevel::kOff);
  ManualClock clock;
  const RunWatch watch(clock);
  clock.wait_for_sleepers(1);
  EXPECT_GE(clock.next_wake() - clock.now(), 5 * RunWatch::kPeriod);
  clock.advance(std::chrono::hours(1));
  clock.wait_for_sleepers(1);
  EXPECT_NE(find_stop_record(recorder().snapshot()).zone, Zone::kNotRunning);
}

using std::chrono::milliseconds;

/// A look 100 ms after the one before it, where a tick is a microsecond: the watch slept for 24 ms of it.
constexpr WatchLook kLook{.looked = 1'000'000, .woke = 1'100'000, .gap = milliseconds(100), .core_wait = milliseconds(0)};

std::optional<uint64_t> find_stop_behind(const WatchLook& look, uint64_t sign_of_life) {
  return find_stop(look, [=](uint64_t limit) {
    EXPECT_NEAR(static_cast<double>(limit), 1'024'000, 1) << "the end of the sleep";
    return sign_of_life;
  });
}

TEST(FindStop, AStopBeginsAtTheLastSignOfLife) { EXPECT_EQ(find_stop_behind(kLook, 1'007'000), 1'007'000U); }

TEST(FindStop, WithoutASignOfLifeItBeginsInTheMiddleOfTheSleep) {
  for (const uint64_t sign_of_life : {uint64_t{0}, uint64_t{999'000}, kLook.looked}) {
    const std::optional<uint64_t> begin = find_stop_behind(kLook, sign_of_life);
    ASSERT_TRUE(begin);
    EXPECT_NEAR(static_cast<double>(*begin), 1'012'000, 1);
  }
}

TEST(FindStop, AWaitForACoreIsNone) {
  WatchLook look = kLook;
  look.core_wait = milliseconds(73);
  EXPECT_FALSE(find_stop_behind(look, 0)) << "27 ms are the scheduler's";
  look.core_wait = milliseconds(72);
  EXPECT_TRUE(find_stop_behind(look, 0));
}

/// The system's own word for a stop: a signal that stops the process, and a timer that wakes a thread late.
TEST(RunWatchOnHost, NoticesAStopBySignal) {
  recorder().set_idle_level(TraceLevel::kSteps);
  const RunWatch watch;
  std::this_thread::sleep_for(milliseconds(150));  // it looks often from now on
  be_stopped(milliseconds(80));
  SpanRecord stop;
  double ms = 0;
  eventually(
      [&] {
        const RankCapture capture = recorder().snapshot();
        stop = find_stop_record(capture);
        ms = static_cast<double>(stop.end - stop.begin) * capture.ticks.ns_per_tick / 1e6;
        return stop.zone == Zone::kNotRunning && ms >= 70;
      },
      "a stop of 80 ms in the trace", [&] { return "the longest is of " + std::to_string(ms) + " ms"; });
  EXPECT_LT(stop.a / 1e3, ms) << "a stop is no wait for a core";
  recorder().set_idle_level(TraceLevel::kOff);
}

TEST(ReadingPaceTest, WhatTakesLongIsReadLessOften) {
  using std::chrono::microseconds;
  ReadingPace pace;
  const ReadingPace::Time begin{std::chrono::seconds(1)};
  EXPECT_TRUE(pace.is_due(begin)) << "the first";
  pace.took(begin, begin + microseconds(10), 1);
  EXPECT_FALSE(pace.is_due(begin + microseconds(4009)));
  EXPECT_TRUE(pace.is_due(begin + microseconds(4010)));
  const ReadingPace::Time held_up = begin + std::chrono::seconds(3);
  pace.took(begin, held_up, 2);
  EXPECT_FALSE(pace.is_due(held_up + microseconds(15'999)));
  EXPECT_TRUE(pace.is_due(held_up + microseconds(16'000)));
  pace.took(begin, begin + microseconds(1000), 1000);
  EXPECT_FALSE(pace.is_due(begin + microseconds(400'999))) << "many threads are no hold-up";
}

TEST(DelayCounterTest, AThreadThatIsUnknownWaitsForNothing) {
  DelayCounter counter(1 << 30);
  EXPECT_EQ(counter.take_ns(), 0);
}

class ScheduleFile : public testing::Test {
 protected:
  void say(const std::string& text) const { std::ofstream(path()) << text; }
  std::string path() const { return folder_.path() / "schedstat"; }

 private:
  test::TempFolder folder_;
};

TEST_F(ScheduleFile, WaitsForACoreAreCountedSinceTheLastCall) {
  say("900 1500 7\n");
  DelayCounter counter(1, path());
  EXPECT_EQ(counter.take_ns(), 0) << "what was before it is not counted";
  say("5000 2500 8\n");
  const uint64_t before = now_ticks();
  EXPECT_EQ(counter.take_ns(), 1000);
  EXPECT_GE(counter.since(), before);
  EXPECT_EQ(counter.take_ns(), 0);
}

TEST_F(ScheduleFile, WhatSaysNothingIsNoWait) {
  say("900 1500 7\n");
  DelayCounter counter(1, path());
  for (const char* text : {"", "900", "900 x 7", "garbage"}) {
    say(text);
    EXPECT_EQ(counter.take_ns(), 0) << text;
  }
  say("900 1600 7\n");
  EXPECT_EQ(counter.take_ns(), 100);
}

/// Two threads that share a core wait for each other, sooner or later.
TEST(DelayCounterTest, CountsWaitsForACore) {
  if (access("/proc/self/schedstat", R_OK) != 0) GTEST_SKIP() << "this kernel counts no waits";
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> is_done{false};
  std::thread rival([&] {
    while (!is_done) {
    }
  });
  DelayCounter counter(gettid());
  const auto end = std::chrono::steady_clock::now() + kTestLimit;
  int64_t delay_ns = 0;
  while (delay_ns == 0 && std::chrono::steady_clock::now() < end) delay_ns += counter.take_ns();  // it must not sleep
  is_done = true;
  rival.join();
  EXPECT_GT(delay_ns, 0) << "nanoseconds that it waited beside a rival for its core";
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace ferry
