#include "comm/faulty/faulty_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "runtime/base/error.h"

// Each fault does what it is called, in virtual time, and a seed gives the same run again.

namespace ferry {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

using Body = std::function<void(Group&)>;

struct Played {
  EventLog log;
  std::vector<std::optional<Error>> errors;  // [ranks] that ended them
  bool is_harmless = true;
};

/// Plays `body` on `num_ranks` ranks; a rank that throws is lost.
Played play(int num_ranks, const Faults& faults, const Body& body, uint64_t seed = 1) {
  RankThreads threads(num_ranks);
  Played run;
  run.errors.resize(static_cast<std::size_t>(num_ranks));
  VirtualTime time(threads, num_ranks, seed, hours(1000));
  const FaultyNetwork::Wire wire{.guarded_bytes = [](std::span<const std::byte> message, int) { return message.size(); },
                                 .has_fixed_size = [](int) { return true; }};
  FaultyNetwork network(time, num_ranks, faults, seed, wire, run.log);
  time.run([&](Rank rank) {
    const std::unique_ptr<Group> group = network.join(rank);
    try {
      body(*group);
    } catch (const Error& error) {
      run.errors[static_cast<std::size_t>(rank.value)] = error;
      network.lose(rank);
    }
  });
  run.is_harmless = network.is_harmless();
  return run;
}

Faults one_fault(FaultKind kind, int64_t message, uint64_t choice = 0, std::chrono::nanoseconds duration = {}) {
  return {.min_delay = milliseconds(1),
          .max_delay = milliseconds(2),
          .patience = std::chrono::seconds(1),
          .faults = {{.kind = kind, .message = message, .duration = duration, .choice = choice}}};
}

std::vector<std::byte> numbered(int number) { return std::vector<std::byte>(8, static_cast<std::byte>(number)); }

/// Rank 0 sends rank 1 three messages, which returns what came until one did not within a second.
std::vector<std::vector<std::byte>> send_three(const Faults& faults, Played* run = nullptr) {
  std::vector<std::vector<std::byte>> received;
  const Played played = play(2, faults, [&](Group& group) {
    if (group.rank() == Rank{0}) {
      for (int i = 1; i <= 3; ++i) {
        const auto data = numbered(i);
        group.wait(*group.isend(data, Rank{1}, 5), group.now() + std::chrono::seconds(2));
      }
      return;
    }
    while (true) {
      std::vector<std::byte> data(8);
      data.resize(group.wait(*group.irecv(data, Rank{0}, 5, Fit::kUpTo), group.now() + std::chrono::seconds(1)));
      received.push_back(data);
    }
  });
  if (run != nullptr) *run = played;
  return received;
}

void expect_error(const std::optional<Error>& error, ErrorCode code, const std::string& part) {
  ASSERT_TRUE(error.has_value());
  EXPECT_STREQ(error_code_name(error->code()), error_code_name(code)) << error->what();
  EXPECT_NE(std::string(error->what()).find(part), std::string::npos) << error->what();
}

TEST(FaultyNetwork, WithoutAFaultMessagesArriveInOrder) {
  Played run;
  EXPECT_EQ(send_three({}, &run), (std::vector{numbered(1), numbered(2), numbered(3)}));
  EXPECT_TRUE(run.is_harmless);
  expect_error(run.errors[1], ErrorCode::kDeadlineExceeded, "rank 0");
}

TEST(FaultyNetwork, DeadlinesPassInVirtualTime) {
  const Played run = play(2, {}, [](Group& group) {
    if (group.rank() == Rank{0}) return;
    std::vector<std::byte> data(8);
    const Deadline deadline = group.now() + hours(1);
    const auto receive = group.irecv(data, Rank{0}, 0, Fit::kUpTo);
    EXPECT_THROW(group.wait(*receive, deadline), Error);
    EXPECT_EQ(group.now(), deadline);
  });
}

TEST(FaultyNetwork, FaultsOfOneMessage) {
  Played run;
  EXPECT_EQ(send_three(one_fault(FaultKind::kDelay, 2, 0, milliseconds(500)), &run).size(), 3U);
  EXPECT_TRUE(run.is_harmless);
  EXPECT_EQ(send_three(one_fault(FaultKind::kDelay, 2, 0, hours(1)), &run).size(), 1U);
  EXPECT_FALSE(run.is_harmless);
  EXPECT_EQ(send_three(one_fault(FaultKind::kDuplicate, 2)), (std::vector{numbered(1), numbered(2), numbered(2), numbered(3)}));
  EXPECT_EQ(send_three(one_fault(FaultKind::kTruncate, 2, 3))[1], std::vector(3, std::byte{2}));
  std::vector<std::byte> flipped = numbered(2);
  flipped[1] ^= std::byte{8};
  EXPECT_EQ(send_three(one_fault(FaultKind::kFlip, 2, 11))[1], flipped);
}

/// Whether the sender is held up by a message that never comes is drawn: then the third is not sent.
TEST(FaultyNetwork, ADroppedMessageNeverComes) {
  const auto received = send_three(one_fault(FaultKind::kDrop, 2));
  ASSERT_FALSE(received.empty());
  EXPECT_EQ(received[0], numbered(1));
  EXPECT_EQ(std::ranges::count(received, numbered(2)), 0);
}

TEST(FaultyNetwork, ADeadRankIsToldToThoseWhoWatchIt) {
  const auto talk = [](Group& group) {
    for (int i = 0; i < 100; ++i) group.barrier(group.now() + hours(1));
  };
  for (uint64_t victim : {0U, 2U}) {
    const Played run = play(3, one_fault(FaultKind::kKill, 20, victim), talk);
    const std::string name = "rank " + std::to_string(victim) + ": the process ended";
    for (uint64_t r = 0; r < 3; ++r) {
      if (r == victim) expect_error(run.errors[r], ErrorCode::kCancelled, "aborted");
      if (r != victim && (r == 0 || victim == 0)) expect_error(run.errors[r], ErrorCode::kUnavailable, name);
    }
  }
}

TEST(FaultyNetwork, ACutConnectionOrALongPartitionIsUnavailable) {
  const auto talk = [](Group& group) {
    for (int i = 0; i < 100; ++i) group.barrier(group.now() + hours(1));
  };
  for (const FaultKind kind : {FaultKind::kCut, FaultKind::kPartition}) {
    const Played run = play(2, one_fault(kind, 20), talk);
    EXPECT_FALSE(run.is_harmless);
    for (const auto& error : run.errors) expect_error(error, ErrorCode::kUnavailable, "rank ");
  }
  const Played healed = play(2, one_fault(FaultKind::kPartition, 20, 1, milliseconds(900)), talk);
  EXPECT_TRUE(healed.is_harmless);
  for (const auto& error : healed.errors) EXPECT_FALSE(error.has_value()) << error->what();
}

TEST(FaultyNetwork, AStoppedRankGoesOnLater) {
  Played run;
  EXPECT_EQ(send_three(one_fault(FaultKind::kStop, 2, 0, milliseconds(700)), &run).size(), 3U);
  EXPECT_TRUE(run.is_harmless);
}

TEST(FaultyNetwork, ASeedGivesTheSameRunAgain) {
  const auto talk = [](Group& group) {
    for (int i = 0; i < 20; ++i) group.barrier(group.now() + std::chrono::seconds(3));
  };
  int num_failed = 0;
  std::vector<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SeededRandom random(seed);
    const Faults faults = draw_faults(random, 200, std::chrono::seconds(3));
    const Played run = play(4, faults, talk, seed);
    EXPECT_EQ(run.log.hash(), play(4, faults, talk, seed).log.hash()) << seed;
    num_failed += std::ranges::any_of(run.errors, [](const auto& error) { return error.has_value(); }) ? 1 : 0;
    hashes.push_back(run.log.hash());
  }
  EXPECT_GT(num_failed, 5);
  EXPECT_LT(num_failed, 40);
  std::ranges::sort(hashes);
  EXPECT_EQ(std::ranges::adjacent_find(hashes), hashes.end()) << "two seeds went the same way";
}

}  // namespace
}  // namespace ferry
