#include "moe/remote/next_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <string>

#include "tests/moe/moe_cases.h"

// Who holds what after workers came, left or were lost.

namespace ferry {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

/// A job whose workers come and go, with experts that all cost the same.
struct ChangingJob {
  ChangingJob(int64_t num_layers, int64_t num_experts, int num_workers)
      : placement(ExpertPlacement::contiguous(num_layers, num_experts, worker_ranks(num_workers))),
        cost(static_cast<std::size_t>(num_layers), std::vector<double>(static_cast<std::size_t>(num_experts), 1.0)) {
    for (const Rank rank : placement.ranks()) rooms.push_back({.rank = rank, .is_there = true, .holds_current = true});
  }

  void come() { rooms.push_back({.rank = Rank{static_cast<int32_t>(rooms.size()) + 1}, .is_there = true}); }
  void lose(std::size_t worker) { rooms[worker].is_there = rooms[worker].holds_current = false; }
  void let_leave(std::size_t worker) { rooms[worker].is_there = false; }
  /// Another one has its seat.
  void replace(std::size_t worker) {
    rooms[worker].is_there = true;
    rooms[worker].holds_current = false;
  }

  std::optional<ExpertPlacement> next() const {
    return next_placement(placement.epoch() + 1, placement, rooms, cost, {.redundancy = redundancy, .max_loads = max_loads});
  }
  /// From now on the next one is the current one.
  void go_on() {
    std::optional<ExpertPlacement> after = next();
    ASSERT_TRUE(after);
    placement = std::move(*after);
    for (WorkerRoom& room : rooms) room.holds_current = room.is_there;
  }

  std::vector<std::size_t> shares(int64_t layer) const {
    std::vector<std::size_t> sizes;
    for (const auto& experts : placement.experts(layer)) sizes.push_back(experts.size());
    return sizes;
  }

  ExpertPlacement placement;
  std::vector<std::vector<double>> cost;
  std::vector<WorkerRoom> rooms;
  Redundancy redundancy{.kind = Redundancy::Kind::kExtraSlots, .extra_slots = 0};
  int64_t max_loads = kNoLimit;
};

using Shares = std::vector<std::size_t>;

/// Copies of each expert of a layer, which are never on one worker.
std::vector<int> num_copies_of(const ExpertPlacement& placement, int64_t layer) {
  std::vector<int> copies;
  for (const uint64_t holders : placement.holders(layer)) copies.push_back(std::popcount(holders));
  return copies;
}

TEST(NextPlacement, ALostWorkersExpertsGoToOthersInEqualShares) {
  ChangingJob job(2, 12, 4);
  const ExpertPlacement before = job.placement;
  job.lose(1);
  job.go_on();
  EXPECT_EQ(job.placement.epoch(), before.epoch() + 1);
  for (int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(job.shares(layer), (Shares{4, 0, 4, 4}));
    EXPECT_EQ(num_copies_of(job.placement, layer), std::vector<int>(12, 1));
    for (const std::size_t w : {0, 2, 3}) {
      const auto held = before.experts(layer)[w], holds = job.placement.experts(layer)[w];
      EXPECT_TRUE(std::ranges::equal(held, std::span(holds).first(3))) << "what it had it has, in the same slots";
    }
  }
}

TEST(NextPlacement, ANewcomerGetsItsShareAndNothingElseMoves) {
  ChangingJob job(2, 12, 3);
  const ExpertPlacement before = job.placement;
  job.come();
  job.go_on();
  EXPECT_EQ(job.placement.ranks().back(), Rank{4});
  for (int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(job.shares(layer), (Shares{3, 3, 3, 3}));
    EXPECT_EQ(num_copies_of(job.placement, layer), std::vector<int>(12, 1));
    EXPECT_EQ(count_loads(before.experts(layer), job.placement.experts(layer)), 3) << "the newcomer's share alone is read";
  }
}

TEST(NextPlacement, ANewcomerGetsItsShareWhereOthersCouldKeepAllTheyHave) {
  ChangingJob job(2, 7, 4);  // 2, 2, 2, 1: no share would be larger than 2 with five workers, either
  job.come();
  job.go_on();
  for (int64_t layer = 0; layer < 2; ++layer) {
    Shares shares = job.shares(layer);
    EXPECT_GE(shares[4], 1U) << "layer " << layer;
    std::ranges::sort(shares);
    EXPECT_EQ(shares, (Shares{1, 1, 1, 2, 2}));
  }
  ChangingJob bounded(2, 7, 4);
  bounded.come();
  bounded.max_loads = 1;
  bounded.go_on();
  EXPECT_EQ(bounded.shares(0)[4] + bounded.shares(1)[4], 1U);
}

TEST(NextPlacement, ANinthWorkerOf64ExpertsGetsSeven) {
  ChangingJob job(3, 64, 8);  // eight is the largest share of nine workers, too
  job.come();
  job.go_on();
  for (int64_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(job.shares(layer)[8], 7U);
    EXPECT_EQ(std::ranges::count(job.shares(layer), 7U), 8);
    EXPECT_EQ(num_copies_of(job.placement, layer), std::vector<int>(64, 1));
  }
}

TEST(NextPlacement, OneInTheSeatOfALostOneGetsAShareAndReadsAllOfIt) {
  ChangingJob job(1, 12, 3);
  const ExpertPlacement before = job.placement;
  job.replace(1);
  job.go_on();
  EXPECT_EQ(job.shares(0), (Shares{4, 4, 4}));
  for (const std::size_t w : {0, 2}) EXPECT_EQ(job.placement.experts(0)[w], before.experts(0)[w]);
}

TEST(NextPlacement, SecondCopiesOfWhoWasReplacedAreLoadsLikeOthers) {
  ChangingJob job(1, 9, 3);
  job.redundancy.kind = Redundancy::Kind::kTwice;
  job.go_on();
  job.replace(1);
  job.max_loads = 2;
  job.go_on();
  EXPECT_EQ(job.shares(0), (Shares{6, 2, 6})) << "it has none of what its seat held, and each expert has a copy elsewhere";
}

TEST(NextPlacement, ALeavingWorkerEndsWithNothing) {
  for (const auto kind : {Redundancy::Kind::kExtraSlots, Redundancy::Kind::kTwice}) {
    ChangingJob job(2, 12, 4);
    job.redundancy.kind = kind;
    job.go_on();
    job.let_leave(2);
    job.go_on();
    const bool is_twice = kind == Redundancy::Kind::kTwice;
    for (int64_t layer = 0; layer < 2; ++layer) {
      EXPECT_EQ(job.shares(layer), is_twice ? (Shares{8, 8, 0, 8}) : (Shares{4, 4, 0, 4}));
      EXPECT_EQ(num_copies_of(job.placement, layer), std::vector<int>(12, is_twice ? 2 : 1));
    }
  }
}

TEST(NextPlacement, TwoCopiesStayTwoUntilOneWorkerIsLeft) {
  ChangingJob job(2, 9, 4);
  job.redundancy.kind = Redundancy::Kind::kTwice;
  job.go_on();
  for (std::size_t lost = 0; lost < 3; ++lost) {
    for (int64_t layer = 0; layer < 2; ++layer) EXPECT_EQ(num_copies_of(job.placement, layer), std::vector<int>(9, 2)) << lost;
    job.lose(lost);
    job.go_on();
  }
  for (int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(num_copies_of(job.placement, layer), std::vector<int>(9, 1));
    EXPECT_EQ(job.shares(layer), (Shares{0, 0, 0, 9}));
  }
  job.come();
  job.go_on();
  for (int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(num_copies_of(job.placement, layer), std::vector<int>(9, 2)) << "with a second worker, twice again";
    EXPECT_EQ(job.shares(layer), (Shares{0, 0, 0, 9, 9}));
  }
}

TEST(NextPlacement, CopiesOfSomeExpertsStayAsManyAsBefore) {
  ChangingJob job(1, 8, 4);
  job.redundancy.extra_slots = 4;
  job.go_on();
  EXPECT_EQ(job.placement.layer(0).num_physical(), 12);
  job.lose(3);
  job.go_on();
  EXPECT_EQ(job.shares(0), (Shares{4, 4, 4, 0}));
  job.lose(0);
  job.lose(1);
  job.go_on();
  EXPECT_EQ(job.shares(0), (Shares{0, 0, 8, 0})) << "a second copy beside the first is worth nothing";
}

TEST(NextPlacement, NobodyGetsMoreThanItHasRoomFor) {
  ChangingJob job(2, 12, 3);
  job.come();
  job.rooms[3].most_experts = 1;
  job.go_on();
  for (int64_t layer = 0; layer < 2; ++layer) EXPECT_EQ(job.shares(layer)[3], 1U);
  job.lose(0);
  job.rooms[1].most_experts = 5;
  job.go_on();
  for (int64_t layer = 0; layer < 2; ++layer) EXPECT_EQ(job.shares(layer), (Shares{0, 5, 6, 1}));
  job.rooms[1].most_experts = 100;  // more than there are
  job.go_on();
  for (int64_t layer = 0; layer < 2; ++layer) EXPECT_EQ(job.shares(layer)[3], 1U);
}

TEST(NextPlacement, WhereRoomDoesNotDoForTwoCopiesThereAreAsManyAsThereIsRoomFor) {
  ChangingJob job(1, 10, 3);
  job.redundancy.kind = Redundancy::Kind::kTwice;
  for (WorkerRoom& room : job.rooms) room.most_experts = 5;
  job.go_on();
  EXPECT_EQ(job.shares(0), (Shares{5, 5, 5}));
  EXPECT_EQ(std::ranges::count(num_copies_of(job.placement, 0), 0), 0);
}

TEST(NextPlacement, NothingWithoutWorkersOrRoom) {
  ChangingJob job(2, 12, 2);
  for (WorkerRoom& room : job.rooms) room.most_experts = 5;
  EXPECT_FALSE(job.next());
  job.rooms[0].most_experts = 7;
  EXPECT_TRUE(job.next()) << "just enough";
  job.lose(0);
  EXPECT_FALSE(job.next());
  job.rooms[1].most_experts.reset();
  EXPECT_TRUE(job.next());
  job.let_leave(1);
  EXPECT_FALSE(job.next()) << "who leaves takes nothing";
}

TEST(NextPlacement, LoadsForBalanceAreBoundedThoseOfMissingExpertsAreNot) {
  ChangingJob job(4, 12, 3);
  for (std::vector<double>& layer : job.cost) std::fill_n(layer.begin(), 4, 10.0);  // those of the first worker
  const ExpertPlacement before = job.placement;
  job.max_loads = 3;
  const auto num_loads = [&](const ExpertPlacement& after) {
    int64_t loads = 0;
    for (int64_t layer = 0; layer < 4; ++layer) loads += count_loads(before.experts(layer), after.experts(layer));
    return loads;
  };
  const std::optional<ExpertPlacement> balanced = job.next();
  ASSERT_TRUE(balanced);
  EXPECT_GE(num_loads(*balanced), 1);
  EXPECT_LE(num_loads(*balanced), 3);
  job.max_loads = 0;
  job.lose(2);
  const std::optional<ExpertPlacement> after = job.next();
  ASSERT_TRUE(after);
  EXPECT_EQ(num_loads(*after), 4 * 4) << "all that are missing, and no other";
}

/// Holds after any change that has a next placement.
void expect_sound(const ChangingJob& job, bool has_copies, const std::string& when) {
  SCOPED_TRACE(when);
  const auto num_there = std::ranges::count_if(job.rooms, &WorkerRoom::is_there);
  for (int64_t layer = 0; layer < job.placement.num_layers(); ++layer) {
    const std::vector<int> copies = num_copies_of(job.placement, layer);
    EXPECT_EQ(std::ranges::count(copies, 0), 0) << "of layer " << layer;
    std::size_t least = SIZE_MAX, most = 0;
    const Shares shares = job.shares(layer);
    for (std::size_t w = 0; w < shares.size(); ++w) {
      if (!job.rooms[w].is_there) {
        EXPECT_EQ(shares[w], 0U) << "worker " << w << " of layer " << layer;
        continue;
      }
      least = std::min(least, shares[w]);
      most = std::max(most, shares[w]);
    }
    if (!has_copies) {
      EXPECT_LE(most - least, 1U) << "of layer " << layer << ": " << testing::PrintToString(shares);
    }
    if (has_copies && num_there > 1) {
      EXPECT_EQ(std::ranges::min(copies), 2) << "of layer " << layer;
    }
  }
}

TEST(NextPlacement, WhateverChangesEveryExpertHasAHolderAndSharesAreEqual) {
  std::mt19937 random(20250901);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int num_changes = 0;
  for (int run = 0; run < 40; ++run) {
    const int num_workers = 1 + static_cast<int>(below(6));
    ChangingJob job(1 + static_cast<int64_t>(below(3)), num_workers + static_cast<int64_t>(below(40)), num_workers);
    const bool has_copies = run % 2 == 1;
    if (has_copies) job.redundancy.kind = Redundancy::Kind::kTwice;
    std::string history = "run " + std::to_string(run) + " of " + std::to_string(job.placement.num_experts()) + " experts on " +
                          std::to_string(num_workers);
    for (int change = 0; change < 12; ++change) {
      const std::size_t worker = below(job.rooms.size());
      switch (below(4)) {
        case 0:
          if (std::ssize(job.rooms) < std::min<int64_t>(12, job.placement.num_experts())) job.come();
          history += ", one comes";
          break;
        case 1:
          job.lose(worker);
          history += ", loses " + std::to_string(worker);
          break;
        case 2:
          job.let_leave(worker);
          history += ", lets leave " + std::to_string(worker);
          break;
        case 3:
          job.replace(worker);
          history += ", replaces " + std::to_string(worker);
          break;
      }
      if (std::ranges::none_of(job.rooms, &WorkerRoom::is_there)) {
        EXPECT_FALSE(job.next()) << history;
        job.replace(worker);
      }
      const uint32_t epoch = job.placement.epoch();
      job.go_on();
      EXPECT_EQ(job.placement.epoch(), epoch + 1);
      EXPECT_EQ(job.placement.ranks().size(), job.rooms.size());
      expect_sound(job, has_copies, history);
      if (testing::Test::HasFailure()) return;
      ++num_changes;
    }
  }
  EXPECT_EQ(num_changes, 480);
}

}  // namespace
}  // namespace ferry
