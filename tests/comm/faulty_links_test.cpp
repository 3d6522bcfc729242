#include "comm/faulty/faulty_links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "runtime/base/error.h"

// What simulated links do, as sockets do it: in order or not at all, with an end of their own.

namespace ferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr int kTag = 7;

/// Rank 0 and the others, each of which has a link with it.
struct LinkedRank {
  FaultyLinks& links;
  VirtualTime& time;
  FaultyHub hub;
  std::unique_ptr<Link> link;  // of rank 0 with rank 1, of another with rank 0
  std::vector<std::string> ends;

  void sleep(std::chrono::nanoseconds duration) {
    const Deadline until = hub.now() + duration;
    while (time.now() < until) time.wait(hub.rank(), until, [] { return false; });
    hub.now();  // throws if it was killed
  }
  void send(const std::vector<std::byte>& message) { link->wait(*link->isend(message, kTag), hub.now() + minutes(1)); }
  std::vector<std::byte> receive(std::chrono::nanoseconds time_left) {
    std::vector<std::byte> message(100);
    message.resize(link->wait(*link->irecv(message, kTag, Fit::kUpTo), hub.now() + time_left));
    return message;
  }
};

struct LinkedRun {
  std::vector<std::optional<Error>> errors{2};
  std::vector<bool> was_killed{false, false};
  std::vector<FaultyLinks::GivenUp> given_up;
  uint64_t hash = 0;
};

/// Rank 0 plays `near`, rank 1 `far`.
LinkedRun play_linked(const Faults& faults, const std::function<void(LinkedRank&)>& near,
                      const std::function<void(LinkedRank&)>& far, uint64_t seed = 1,
                      const FaultyLinks::Wire* other_wire = nullptr) {
  RankThreads threads(2);
  EventLog log;
  LinkedRun run;
  VirtualTime time(threads, 2, seed, std::chrono::hours(100));
  FaultyNetwork network(time, 2, faults, seed, {.guarded_bytes = {}, .has_fixed_size = [](int) { return true; }}, log);
  const FaultyLinks::Wire wire{.role_of = [](auto, int) { return FaultyLinks::Role::kOther; },
                               .work = [](auto, int, const Slowness&) { return FaultyLinks::Duration(0); },
                               .spoil = {},
                               .loses = {}};
  FaultyLinks links(network, other_wire == nullptr ? wire : *other_wire);
  const auto connection = links.connect(Rank{0}, Rank{1}, Rank{5});
  time.run([&](Rank rank) {
    const auto idx = static_cast<std::size_t>(rank.value);
    try {
      std::vector<std::string> ends;
      LinkedRank self{.links = links, .time = time, .hub = FaultyHub(links, rank, {}), .link = nullptr, .ends = {}};
      self.link = self.hub.adopt(connection);
      (rank == Rank{0} ? near : far)(self);
    } catch (const Error& error) {
      run.errors[idx] = error;
    } catch (const RankKilled&) {
      run.was_killed[idx] = true;
    }
    links.end_process(rank);
  });
  run.given_up = links.given_up();
  run.hash = log.hash();
  return run;
}

Faults link_fault(FaultKind kind, int64_t message, uint64_t choice = 0, std::chrono::nanoseconds duration = {}) {
  return {.min_delay = milliseconds(1),
          .max_delay = milliseconds(20),
          .patience = seconds(1),
          .faults = {{.kind = kind, .message = message, .duration = duration, .choice = choice}}};
}
const Faults kCalm{.min_delay = milliseconds(1), .max_delay = milliseconds(20), .patience = seconds(1), .faults = {}};

std::vector<std::byte> text(const std::string& what) {
  const auto bytes = std::as_bytes(std::span(what));
  return {bytes.begin(), bytes.end()};
}

void send_ten(LinkedRank& self) {
  for (int i = 0; i < 10; ++i) self.send(text(std::to_string(i)));
}

/// What comes until something else does.
struct Heard {
  std::string all;
  std::optional<Error> error;
};
std::function<void(LinkedRank&)> hear_into(Heard& heard, std::chrono::nanoseconds patience = seconds(10)) {
  return [&heard, patience](LinkedRank& self) {
    try {
      while (true) {
        for (const std::byte letter : self.receive(patience)) heard.all += static_cast<char>(letter);
      }
    } catch (const Error& error) {
      heard.error = error;
      throw;
    }
  };
}

TEST(FaultyLinks, MessagesComeInOrderAndAGoodbyeBehindThem) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Heard heard;
    const LinkedRun run = play_linked(kCalm, send_ten, hear_into(heard), seed);
    EXPECT_EQ(heard.all, "0123456789");
    ASSERT_TRUE(heard.error);
    EXPECT_EQ(heard.error->code(), ErrorCode::kUnavailable);
    EXPECT_STREQ(heard.error->what(), "rank 0: left");
    EXPECT_TRUE(run.given_up.empty());
    EXPECT_EQ(run.hash, play_linked(kCalm, send_ten, hear_into(heard), seed).hash);
  }
}

TEST(FaultyLinks, AMessageThatIsLostCutOrCutShortIsTheEndOfItsLink) {
  for (const FaultKind kind : {FaultKind::kDrop, FaultKind::kCut, FaultKind::kTruncate}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      Heard heard;
      play_linked(link_fault(kind, 4), send_ten, hear_into(heard, minutes(30)), seed);
      EXPECT_TRUE(std::string("012").starts_with(heard.all)) << heard.all;
      ASSERT_TRUE(heard.error);
      EXPECT_EQ(heard.error->code(), ErrorCode::kUnavailable);
      EXPECT_NE(std::string(heard.error->what()).find("its connection broke"), std::string::npos) << heard.error->what();
    }
  }
}

TEST(FaultyLinks, AStopOrADelayHoldsAllBackAndBreaksNothing) {
  for (const FaultKind kind : {FaultKind::kDelay, FaultKind::kStop, FaultKind::kPartition}) {
    Heard heard;
    play_linked(link_fault(kind, 4, /*choice=*/1, milliseconds(900)), send_ten, hear_into(heard));
    EXPECT_EQ(heard.all, "0123456789") << fault_name(kind);
  }
}

TEST(FaultyLinks, OfAKilledRankNothingGoesOn) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Heard heard;
    bool went_on = false;
    const LinkedRun run = play_linked(
        link_fault(FaultKind::kKill, 4, /*choice=*/0),
        [&](LinkedRank& self) {
          send_ten(self);
          went_on = true;
        },
        hear_into(heard), seed);
    EXPECT_TRUE(run.was_killed[0]);
    EXPECT_FALSE(went_on);
    EXPECT_TRUE(std::string("0123").starts_with(heard.all)) << heard.all;
    ASSERT_TRUE(heard.error);
    EXPECT_STREQ(heard.error->what(), "rank 0: its connection broke: closed without a goodbye");
  }
}

TEST(FaultyLinks, ADeadlineEndsNothing) {
  Heard heard;
  play_linked(
      kCalm, [](LinkedRank& self) { self.sleep(seconds(3)), send_ten(self); },
      [&](LinkedRank& self) {
        std::vector<std::byte> message(1);
        const auto receive = self.link->irecv(message, kTag, Fit::kExact);
        for (int i = 0; i < 2; ++i) EXPECT_THROW(self.link->wait(*receive, self.hub.now() + seconds(1)), Error);
        PendingOp* const ops[] = {receive.get()};
        EXPECT_THROW(self.hub.wait_any(ops, self.hub.now()), Error);
        EXPECT_FALSE(self.link->failure());
        EXPECT_EQ(self.hub.wait_any(ops, self.hub.now() + seconds(10)), 0U);
        EXPECT_EQ(self.link->wait(*receive, self.hub.now()), 1U);
        EXPECT_EQ(message, text("0"));
        hear_into(heard)(self);
      });
  EXPECT_EQ(heard.all, "123456789");
}

/// A receive that is dropped before its message has begun leaves it to the next one; one in the middle of it takes it along.
TEST(FaultyLinks, AReceiveMayBeDropped) {
  int num_left = 0, num_taken = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Heard heard;
    play_linked(
        kCalm, send_ten,
        [&](LinkedRank& self) {
          std::vector<std::byte> message(1);
          auto receive = self.link->irecv(message, kTag, Fit::kUpTo);
          self.sleep(milliseconds(seed % 15));
          receive.reset();
          message.clear();
          message.shrink_to_fit();
          hear_into(heard)(self);
        },
        seed);
    num_left += heard.all == "0123456789" ? 1 : 0;
    num_taken += heard.all == "123456789" ? 1 : 0;
  }
  EXPECT_EQ(num_left + num_taken, 60);
  EXPECT_GT(num_left, 5);
  EXPECT_GT(num_taken, 5);
}

TEST(FaultyLinks, WhoGivesUpSaysForHowLongItHasWaited) {
  const FaultyLinks::Wire wire{
      .role_of = [](std::span<const std::byte>,
                    int tag) { return tag == kTag ? FaultyLinks::Role::kQuestion : FaultyLinks::Role::kAnswer; },
      .work = [](auto, int, const Slowness&) { return FaultyLinks::Duration(0); },
      .spoil = {},
      .loses = {}};
  const LinkedRun run = play_linked(
      kCalm,
      [](LinkedRank& self) {
        self.send(text("?"));
        std::vector<std::byte> answer(1);
        self.link->wait(*self.link->irecv(answer, kTag + 1, Fit::kExact), self.hub.now() + seconds(1));
        self.sleep(seconds(2));
        self.send(text("?"));
        self.sleep(seconds(3));
        self.link->fail("it is silent");
        EXPECT_STREQ(self.link->failure()->what(), "rank 5: it is silent");
      },
      [](LinkedRank& self) {
        self.receive(seconds(1));
        const auto answer = text("!");
        self.link->wait(*self.link->isend(answer, kTag + 1), self.hub.now() + seconds(1));
        self.receive(seconds(10));
        self.receive(seconds(10));
      },
      1, &wire);
  ASSERT_EQ(run.given_up.size(), 1U);
  EXPECT_EQ(run.given_up[0].of, Rank{1});
  ASSERT_TRUE(run.given_up[0].unanswered);
  EXPECT_GE(*run.given_up[0].unanswered, seconds(3));
  EXPECT_LT(*run.given_up[0].unanswered, seconds(4));
  EXPECT_GT(run.given_up[0].silence, seconds(5));
  ASSERT_TRUE(run.errors[1]);
  EXPECT_STREQ(run.errors[1]->what(), "rank 0: its connection broke: closed without a goodbye");
}

}  // namespace
}  // namespace ferry
