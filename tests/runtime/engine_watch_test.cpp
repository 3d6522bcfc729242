#include "runtime/engine_watch.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "comm/group_links.h"
#include "comm/local_group.h"
#include "runtime/watched_links.h"

namespace ferry {
namespace {

using Activity = Progress::Activity;
using Verdict = ProgressRule::Verdict;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPeerTimeout{10};
constexpr milliseconds kLook{100};

/// A rule, the engine that it looks at, and a clock that only the test moves.
struct Watched {
  ProgressRule rule{kPeerTimeout};
  ProgressRule::Time now{};
  Progress::Sight sight;
  uint64_t pool = 0;

  void enter(Activity activity) {
    sight.activity = activity;
    ++sight.num_marks;
  }
  Verdict look(milliseconds passed = kLook) {
    now += passed;
    return rule.look(now, sight, pool);
  }
  /// Looks for as long as the verdict is `verdict`, at most an hour: how long that is.
  milliseconds lasts(Verdict verdict) {
    milliseconds total{0};
    while (total < seconds(3600) && look() == verdict) total += kLook;
    return total;
  }
};

TEST(ProgressRule, AnEngineThatRunsNothingIsNeverOverdue) {
  Watched watched;
  EXPECT_EQ(watched.lasts(Verdict::kGoesOn), seconds(3600));
}

TEST(ProgressRule, WhatStandsStillIsOverdueWithinTwoSecondsAndDeadAfterThePeerTimeout) {
  for (const Activity activity : {Activity::kIdle, Activity::kComputing, Activity::kPosting}) {
    Watched watched;
    watched.enter(activity);
    EXPECT_LT(watched.lasts(Verdict::kGoesOn), seconds(2));
    const milliseconds overdue = watched.lasts(Verdict::kOverdue);
    EXPECT_GT(watched.rule.still(), kPeerTimeout);
    EXPECT_LE(watched.rule.still(), kPeerTimeout + ProgressRule::kGrace);
    EXPECT_GT(overdue, seconds(5));
    EXPECT_EQ(watched.look(), Verdict::kDead);
  }
}

TEST(ProgressRule, AnIdleEngineThatTicksGoesOn) {
  Watched watched;
  for (int i = 0; i < 1000; ++i) {
    watched.enter(Activity::kIdle);
    ASSERT_EQ(watched.look(milliseconds(250)), Verdict::kGoesOn);
  }
}

TEST(ProgressRule, ComputingMayTakeMinutesWhileAnythingMoves) {
  Watched watched;
  watched.enter(Activity::kComputing);
  for (int i = 0; i < 6000; ++i) {
    if (i % 10 == 0 && i < 3000) ++watched.pool;                              // a task a second
    if (i % 10 == 0 && i >= 3000) watched.sight.cpu_time += milliseconds(3);  // or the engine's thread on a core
    ASSERT_EQ(watched.look(), Verdict::kGoesOn) << i;
  }
  EXPECT_LT(watched.lasts(Verdict::kGoesOn), seconds(2));
}

TEST(ProgressRule, WaitingIsNotComputing) {
  Watched watched;
  watched.enter(Activity::kAwaiting);
  watched.sight.usual = milliseconds(20);
  Verdict verdict = Verdict::kGoesOn;
  for (int i = 0; i < 20; ++i) {  // other threads and a transport that polls keep busy
    ++watched.pool;
    watched.sight.cpu_time += milliseconds(100);
    verdict = watched.look();
  }
  EXPECT_EQ(verdict, Verdict::kOverdue);
}

TEST(ProgressRule, AWaitMayTakeAMultipleOfWhatIsUsual) {
  Watched watched;
  watched.enter(Activity::kAwaiting);
  watched.sight.usual = milliseconds(1000);
  const milliseconds allowed = watched.lasts(Verdict::kGoesOn);
  EXPECT_GE(allowed, milliseconds(5000));
  EXPECT_LT(allowed, milliseconds(6000));
  watched.enter(Activity::kAwaiting);
  watched.sight.usual = seconds(100);
  EXPECT_LE(watched.lasts(Verdict::kGoesOn), kPeerTimeout);
}

TEST(ProgressRule, AMessageOfANewSizeMayTakeThePeerTimeout) {
  Watched watched;
  watched.enter(Activity::kAwaiting);
  const milliseconds allowed = watched.lasts(Verdict::kGoesOn);
  EXPECT_GE(allowed, kPeerTimeout - kLook);
  EXPECT_LE(allowed, kPeerTimeout);
}

TEST(ProgressRule, AnOverdueEngineRecovers) {
  Watched watched;
  watched.enter(Activity::kPosting);
  watched.lasts(Verdict::kGoesOn);
  EXPECT_EQ(watched.look(), Verdict::kOverdue);
  watched.enter(Activity::kComputing);
  EXPECT_EQ(watched.look(), Verdict::kGoesOn);
}

TEST(ProgressRule, AWatchThatWasStoppedItselfBlamesNobody) {
  Watched watched;
  watched.enter(Activity::kIdle);
  EXPECT_EQ(watched.look(), Verdict::kGoesOn);
  EXPECT_EQ(watched.look(seconds(3600)), Verdict::kGoesOn);
  watched.enter(Activity::kIdle);
  EXPECT_EQ(watched.look(), Verdict::kGoesOn);
}

TEST(WaitTimes, AreKeptByTagAndSize) {
  WaitTimes times;
  EXPECT_FALSE(times.usual({.tag = 1, .bytes = 1000}));
  times.learn({.tag = 1, .bytes = 1000}, milliseconds(40));
  EXPECT_EQ(times.usual({.tag = 1, .bytes = 600}), milliseconds(40));
  EXPECT_FALSE(times.usual({.tag = 2, .bytes = 1000}));
  EXPECT_FALSE(times.usual({.tag = 1, .bytes = 1024}));
  EXPECT_FALSE(times.usual({.tag = 1, .bytes = 0}));
}

TEST(WaitTimes, FollowTheLongestAndForgetAStall) {
  WaitTimes times;
  const OpInfo message{.peer = Rank{1}, .tag = 1, .bytes = 64};
  times.learn(message, milliseconds(10));
  times.learn(message, seconds(60));
  EXPECT_LT(*times.usual(message), milliseconds(300));
  for (int i = 0; i < 100; ++i) times.learn(message, milliseconds(10));
  EXPECT_EQ(*times.usual(message), milliseconds(10));
  for (int i = 0; i < 10; ++i) times.learn(message, seconds(20));
  EXPECT_EQ(*times.usual(message), seconds(20)) << "what is slow every time is usual";
}

TEST(Progress, ScopesNestAndCount) {
  Progress progress;
  EXPECT_EQ(progress.look().activity, Activity::kElsewhere);
  {
    const Progress::Scope computing(progress, Activity::kComputing);
    {
      const Progress::Scope posting(progress, Activity::kPosting, {.peer = Rank{2}, .tag = 1, .bytes = 77});
      EXPECT_EQ(progress.look().activity, Activity::kPosting);
      EXPECT_EQ(progress.look().op.bytes, 77U);
    }
    EXPECT_EQ(progress.look().activity, Activity::kComputing);
    EXPECT_EQ(progress.look().num_marks, 3U);
  }
  EXPECT_EQ(progress.look().activity, Activity::kElsewhere);
}

TEST(WatchedLinks, MarkWaitsAndCarryMessages) {
  const auto groups = make_local_groups(2);
  Progress progress;
  GroupLinks links(*groups[0]);
  WatchedLinks watched(links, progress);
  const std::unique_ptr<Link> link = watched.watch(links.link(Rank{1}));
  std::array<std::byte, 8> out{}, in{};
  out[3] = std::byte{9};
  const auto receive = link->irecv(in, 5, Fit::kExact);
  std::atomic<bool> has_looked{false};
  std::thread peer([&] {
    while (progress.look().activity != Activity::kAwaiting) std::this_thread::yield();
    EXPECT_EQ(progress.look().op.peer, Rank{1});
    EXPECT_EQ(progress.look().op.tag, 5);
    EXPECT_EQ(progress.look().op.bytes, 8U);
    has_looked = true;
    const auto send = groups[1]->isend(out, Rank{0}, 5);
    groups[1]->wait(*send, std::chrono::steady_clock::now() + seconds(60));
  });
  PendingOp* const ops[] = {receive.get()};
  EXPECT_EQ(watched.wait_any(ops, std::chrono::steady_clock::now() + seconds(60)), 0U);
  EXPECT_EQ(link->wait(*receive, std::chrono::steady_clock::now() + seconds(60)), 8U);
  peer.join();
  EXPECT_TRUE(has_looked);
  EXPECT_EQ(in, out);
  EXPECT_EQ(progress.look().activity, Activity::kElsewhere);
  const Progress::Scope again(progress, Activity::kAwaiting, {.peer = Rank{1}, .tag = 5, .bytes = 8});
  EXPECT_TRUE(progress.look().usual) << "the wait was not learnt from";
}

TEST(EngineWatch, TellsOfAStallAndOfItsEndAndOfADeadEngine) {
  Progress progress;
  ThreadPool pool(1);
  std::atomic<int> num_overdue{0}, num_recovered{0};
  std::string line;
  std::atomic<bool> is_dead{false};
  EngineWatch watch(progress, pool, {}, seconds(2), [&](const std::string& text) {
    if (is_dead) return;
    line = text;
    is_dead = true;
  });
  watch.set_on_change(
      [&](const std::optional<std::string>& complaint) { ++(complaint.has_value() ? num_overdue : num_recovered); });
  const auto wait_for = [](const std::atomic<int>& count) {
    while (count == 0) std::this_thread::sleep_for(milliseconds(5));
  };
  EXPECT_FALSE(watch.complaint());
  {
    const Progress::Scope posting(progress, Activity::kPosting, {.peer = Rank{3}, .tag = 1, .bytes = 55});
    wait_for(num_overdue);
    ASSERT_TRUE(watch.complaint());
    EXPECT_NE(watch.complaint()->find("posting the send of 55 bytes to rank 3 (tag 1)"), std::string::npos)
        << *watch.complaint();
  }
  wait_for(num_recovered);
  EXPECT_FALSE(watch.complaint());
  EXPECT_FALSE(is_dead);
  const Progress::Scope idle(progress, Activity::kIdle);
  while (!is_dead) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_NE(line.find("--peer-timeout allows 2.0 s"), std::string::npos) << line;
}

TEST(EngineWatch, WhatADeviceRunsIsProgress) {
  Progress progress;
  ThreadPool pool(1);
  std::atomic<uint64_t> num_done{0};
  std::atomic<int> num_overdue{0}, num_looks{0};
  std::atomic<bool> runs{true};
  const auto ask = [&] {
    ++num_looks;
    return runs ? ++num_done : num_done.load();
  };
  EngineWatch watch(progress, pool, ask, seconds(2), [](const std::string&) {});
  watch.set_on_change([&](const std::optional<std::string>& complaint) { num_overdue += complaint.has_value() ? 1 : 0; });
  const Progress::Scope computing(progress, Activity::kComputing);
  const int kLooks = static_cast<int>(2 * ProgressRule::kSlack / EngineWatch::kPeriod);
  while (num_looks < kLooks) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(num_overdue, 0);
  runs = false;
  while (num_overdue == 0) std::this_thread::sleep_for(milliseconds(5));
}

}  // namespace
}  // namespace ferry
