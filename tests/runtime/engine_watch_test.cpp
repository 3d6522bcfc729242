#include "runtime/engine_watch.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "comm/group_links.h"
#include "comm/local_group.h"
#include "runtime/watched_links.h"
#include "tests/support/eventually.h"
#include "tests/support/in_good_time.h"
#include "tests/support/manual_clock.h"

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
    eventually([&] { return progress.look().activity == Activity::kAwaiting; }, "a wait");
    EXPECT_EQ(progress.look().op.peer, Rank{1});
    EXPECT_EQ(progress.look().op.tag, 5);
    EXPECT_EQ(progress.look().op.bytes, 8U);
    has_looked = true;
    const auto send = groups[1]->isend(out, Rank{0}, 5);
    groups[1]->wait(*send, test::in_good_time());
  });
  PendingOp* const ops[] = {receive.get()};
  EXPECT_EQ(watched.wait_any(ops, test::in_good_time()), 0U);
  EXPECT_EQ(link->wait(*receive, test::in_good_time()), 8U);
  peer.join();
  EXPECT_TRUE(has_looked);
  EXPECT_EQ(in, out);
  EXPECT_EQ(progress.look().activity, Activity::kElsewhere);
  const Progress::Scope again(progress, Activity::kAwaiting, {.peer = Rank{1}, .tag = 5, .bytes = 8});
  EXPECT_TRUE(progress.look().usual) << "the wait was not learnt from";
}

/// A watch whose time passes look by look, and an engine's thread that does nothing but stand at one activity.
class StillEngine {
 public:
  explicit StillEngine(std::function<uint64_t()> device_progress = {})
      : watch_(
            progress_, pool_, std::move(device_progress), seconds(2),
            [this](const std::string& text) {
              if (death_.empty()) death_ = text;
            },
            clock_) {
    watch_.set_on_change([this](const std::optional<std::string>& complaint) { changes_.push_back(complaint.has_value()); });
  }

  void look(int times) {
    for (; times > 0; --times) clock_.advance_to_next_wake();
    clock_.wait_for_sleepers(1);  // the last look is over
  }
  /// Looks until `has_come`, for at most a minute of the clock's time.
  void look_until(const std::function<bool()>& has_come, const std::string& what) {
    for (milliseconds passed{0}; !has_come(); passed += EngineWatch::kPeriod) {
      ASSERT_LT(passed, seconds(60)) << "no " << what;
      look(1);
    }
  }
  /// Runs `act` while a thread stands at `activity`.
  void stand_at(Activity activity, const OpInfo& op, const std::function<void()>& act) {
    std::promise<void> stands, may_go;
    std::thread engine([&] {
      const Progress::Scope scope(progress_, activity, op);
      stands.set_value();
      may_go.get_future().wait();
    });
    stands.get_future().wait();
    act();
    may_go.set_value();
    engine.join();
  }
  const EngineWatch& watch() const { return watch_; }
  /// Whether it became overdue, or went on again. Between two looks, as all below.
  const std::vector<bool>& changes() const { return changes_; }
  const std::string& death() const { return death_; }

 private:
  Progress progress_;
  ThreadPool pool_{1};
  ManualClock clock_;
  std::vector<bool> changes_;
  std::string death_;
  EngineWatch watch_;  // last: its thread uses all of the above
};

TEST(EngineWatch, TellsOfAStallAndOfItsEndAndOfADeadEngine) {
  StillEngine engine;
  EXPECT_FALSE(engine.watch().complaint());
  engine.stand_at(Activity::kPosting, {.peer = Rank{3}, .tag = 1, .bytes = 55}, [&] {
    engine.look_until([&] { return !engine.changes().empty(); }, "stall");
    ASSERT_TRUE(engine.watch().complaint());
    EXPECT_NE(engine.watch().complaint()->find("posting the send of 55 bytes to rank 3 (tag 1)"), std::string::npos)
        << *engine.watch().complaint();
  });
  engine.look(1);
  EXPECT_EQ(engine.changes(), (std::vector{true, false}));
  EXPECT_FALSE(engine.watch().complaint());
  EXPECT_EQ(engine.death(), "");
  engine.stand_at(Activity::kIdle, {}, [&] { engine.look_until([&] { return !engine.death().empty(); }, "death"); });
  EXPECT_NE(engine.death().find("--peer-timeout allows 2.0 s"), std::string::npos) << engine.death();
}

TEST(EngineWatch, WhatADeviceRunsIsProgress) {
  std::atomic<uint64_t> num_done{0};
  std::atomic<bool> runs{true};
  StillEngine engine([&] { return runs ? ++num_done : num_done.load(); });
  engine.stand_at(Activity::kComputing, {}, [&] {
    engine.look(static_cast<int>(2 * ProgressRule::kSlack / EngineWatch::kPeriod));
    EXPECT_TRUE(engine.changes().empty());
    runs = false;
    engine.look(static_cast<int>(ProgressRule::kSlack / EngineWatch::kPeriod) + 1);
    EXPECT_EQ(engine.changes(), std::vector{true});
  });
}

}  // namespace
}  // namespace ferry
