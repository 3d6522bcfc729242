#include "profiler/run_account.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "profiler/recorder.h"
#include "profiler/run_watch.h"
#include "profiler/span.h"

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

struct LongestStop {
  double ms = 0;
  double core_wait_ms = 0;
};

LongestStop find_longest_stop(const RankCapture& capture) {
  LongestStop longest;
  for (const ThreadCapture& thread : capture.threads) {
    for (const SpanRecord& record : thread.records) {
      if (record.zone != Zone::kNotRunning) continue;
      const double ms = static_cast<double>(record.end - record.begin) * capture.ticks.ns_per_tick / 1e6;
      if (ms > longest.ms) longest = {ms, record.a / 1e3};
    }
  }
  return longest;
}

/// What a watch says of a stop of 80 ms: the longest that it recorded within a second after it.
LongestStop notice_a_stop() {
  const RunWatch watch;
  std::this_thread::sleep_for(std::chrono::milliseconds(150));  // it looks often from now on
  be_stopped(std::chrono::milliseconds(80));
  LongestStop stop;
  for (int i = 0; i < 100 && stop.ms < 70; ++i) {  // the watch needs a core to tell
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    stop = find_longest_stop(recorder().snapshot());
  }
  return stop;
}

TEST(RunWatchTest, NoticesThatTheProcessWasStopped) {
  recorder().set_idle_level(TraceLevel::kSteps);
  LongestStop stop;  // on a busy machine the watch may wait for a core when the stop begins, and sees the rest of it
  for (int i = 0; i < 20 && stop.ms < 70; ++i) stop = notice_a_stop();
  EXPECT_GE(stop.ms, 70);
  EXPECT_LT(stop.core_wait_ms, stop.ms) << "a stop is no wait for a core";
  recorder().set_idle_level(TraceLevel::kOff);
}

/// Whether a stop of this process, whose only work is to record every millisecond, is said to begin where the records end.
bool stop_begins_with_the_silence() {
  const RunWatch watch;
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  std::atomic<bool> is_done{false};
  std::thread worker([&] {
    recorder().register_thread("worker");
    while (!is_done) {
      record_value(Zone::kRankRows, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  be_stopped(std::chrono::milliseconds(60));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const RankCapture capture = recorder().snapshot();  // before the worker's ring goes with it
  is_done = true;
  worker.join();
  std::set<uint64_t> signs_of_life, stops;
  for (const ThreadCapture& thread : capture.threads) {
    for (const SpanRecord& record : thread.records) {
      if (record.zone == Zone::kRankRows) signs_of_life.insert(record.end);
      if (record.zone == Zone::kNotRunning) stops.insert(record.begin);
    }
  }
  return std::ranges::any_of(stops, [&](uint64_t begin) { return signs_of_life.contains(begin); });
}

TEST(RunWatchTest, AStopBeginsAtTheLastSignOfLife) {
  recorder().set_idle_level(TraceLevel::kSteps);
  bool is_found = false;  // on a busy machine the worker may be silent before the stop
  for (int i = 0; i < 20 && !is_found; ++i) is_found = stop_begins_with_the_silence();
  EXPECT_TRUE(is_found);
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

/// Two threads that share a core wait for each other.
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
  int64_t delay_ns = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (delay_ns == 0 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) delay_ns += counter.take_ns();
  is_done = true;
  rival.join();
  EXPECT_GT(delay_ns, 0);
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(DelayCounterTest, CountsOnlySinceTheLastCall) {
  DelayCounter counter(gettid());
  EXPECT_GE(counter.take_ns(), 0);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_GE(counter.take_ns(), 0);
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(20)) std::this_thread::yield();
  const std::chrono::nanoseconds waited(counter.take_ns());
  EXPECT_LE(waited, std::chrono::steady_clock::now() - begin);
}

}  // namespace
}  // namespace ferry
