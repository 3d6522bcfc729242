#include "moe/remote/worker_seats.h"

#include <gtest/gtest.h>

#include "tests/moe/moe_cases.h"
#include "tests/moe/recording_link.h"

namespace ferry {
namespace {

using test::RecordingLink;

/// Three workers, and what is told of them.
struct Seats {
  Seats() { seats.assign(worker_ranks(3), {&links[0], &links[1], &links[2]}); }

  std::vector<WorkerChange> changes;
  std::array<RecordingLink, 4> links{RecordingLink(1), RecordingLink(2), RecordingLink(3), RecordingLink(4)};
  WorkerSeats seats{[this](const WorkerChange& change) { changes.push_back(change); }};
};

TEST(WorkerSeats, WhoComesIsHealthyAndWhoStaysKeepsWhatIsKnownOfIt) {
  Seats job;
  EXPECT_EQ(job.seats.healthy(), 0b111U);
  ASSERT_EQ(job.changes.size(), 3U);
  EXPECT_EQ(job.changes[2].rank, Rank{3});
  EXPECT_EQ(job.changes[2].from, WorkerState::kVacant);
  job.seats[0].num_requests = 7;
  job.seats[1].num_requests = 8;
  job.seats.let_leave(0);
  job.seats.assign(worker_ranks(4), {&job.links[0], &job.links[3], nullptr, &job.links[2]});
  EXPECT_EQ(job.seats.size(), 4);
  EXPECT_EQ(job.seats[0].state, WorkerState::kLeaving);
  EXPECT_EQ(job.seats[0].num_requests, 7U);
  EXPECT_EQ(job.seats[1].state, WorkerState::kHealthy);
  EXPECT_EQ(job.seats[1].num_requests, 0U) << "another link begins anew";
  EXPECT_EQ(job.seats[2].state, WorkerState::kVacant);
  EXPECT_EQ(job.seats.healthy(), 0b1011U);
}

TEST(WorkerSeats, ALeavingOneGetsRowsUntilItIsRetired) {
  Seats job;
  job.changes.clear();
  job.seats.let_leave(1);
  EXPECT_EQ(job.seats.healthy(), 0b111U);
  EXPECT_TRUE(WorkerSeats::is_healthy(job.seats[1]));
  EXPECT_TRUE(WorkerSeats::is_there(job.seats[1]));
  EXPECT_FALSE(job.seats.misses_some());
  job.seats[1].num_late = 2;
  job.seats.retire(1, "left");
  EXPECT_EQ(job.seats.healthy(), 0b101U);
  EXPECT_FALSE(WorkerSeats::is_there(job.seats[1]));
  EXPECT_EQ(job.seats[1].link, nullptr);
  EXPECT_EQ(job.seats[1].num_late, 0);
  EXPECT_FALSE(job.links[1].failure()) << "its link is its owner's to end";
  EXPECT_FALSE(job.seats.misses_some()) << "one that left is not lost";
  ASSERT_EQ(job.changes.size(), 2U);
  EXPECT_EQ(job.changes[0].to, WorkerState::kLeaving);
  EXPECT_EQ(job.changes[1].from, WorkerState::kLeaving);
  EXPECT_EQ(job.changes[1].to, WorkerState::kGone);
  EXPECT_EQ(job.changes[1].reason, "left");
  EXPECT_EQ(job.changes[1].rank, Rank{2});
}

TEST(WorkerSeats, ALeavingOneCanBeLost) {
  Seats job;
  job.seats.let_leave(1);
  job.changes.clear();
  job.seats.lose(1, Error(ErrorCode::kUnavailable, "rank 2: cut"));
  EXPECT_EQ(job.seats[1].state, WorkerState::kMasked);
  EXPECT_EQ(job.seats.healthy(), 0b101U);
  EXPECT_TRUE(job.seats.misses_some());
  EXPECT_TRUE(job.links[1].failure()) << "nothing more comes from it";
  ASSERT_EQ(job.changes.size(), 1U);
  EXPECT_EQ(job.changes[0].from, WorkerState::kLeaving);
  job.seats.lose(1, Error(ErrorCode::kUnavailable, "again"));
  EXPECT_EQ(job.changes.size(), 1U) << "once is enough";
  try {
    job.seats.require_holder(0b010, 5);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 2: cut");
  }
  job.seats.retire(1, "its experts are elsewhere");
  EXPECT_EQ(job.seats[1].state, WorkerState::kGone);
}

TEST(WorkerSeats, LinksThatEndedAreLookedAtUnlessNobodyIsThere) {
  Seats job;
  job.seats.retire(0, "left");
  job.seats.let_leave(1);
  job.links[1].fail("cut");
  job.seats.look_at_links();
  EXPECT_EQ(job.seats[0].state, WorkerState::kGone);
  EXPECT_EQ(job.seats[1].state, WorkerState::kMasked);
  EXPECT_EQ(job.seats[2].state, WorkerState::kHealthy);
}

TEST(WorkerSeats, ASeatThatWasRetiredMayBeTakenAgain) {
  Seats job;
  job.seats.lose(1, Error(ErrorCode::kUnavailable, "cut"));
  job.seats.retire(1, "its experts are elsewhere");
  job.seats.assign(worker_ranks(3), {&job.links[0], &job.links[3], &job.links[2]});
  EXPECT_EQ(job.seats[1].state, WorkerState::kHealthy);
  EXPECT_FALSE(job.seats[1].error);
  EXPECT_EQ(job.seats.healthy(), 0b111U);
}

}  // namespace
}  // namespace ferry
