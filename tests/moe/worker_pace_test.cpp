#include "moe/remote/worker_pace.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

using std::chrono::microseconds;

/// Replies to `cost` that each took `computed`, and a little on the way.
void learn(WorkerPace& pace, int num_replies, double cost, microseconds computed) {
  for (int i = 0; i < num_replies; ++i) pace.learn(cost, computed + microseconds(10), computed);
}

TEST(WorkerPace, KnowsNothingOfTheFirstReplies) {
  WorkerPace pace;
  learn(pace, WorkerPace::kMinReplies - 1, 2, microseconds(100));
  EXPECT_FALSE(pace.knows());
  EXPECT_EQ(pace.seconds_per_cost(), 0);
  learn(pace, 1, 2, microseconds(100));
  EXPECT_TRUE(pace.knows());
  EXPECT_NEAR(pace.seconds_per_cost(), 50e-6, 1e-12);
}

TEST(WorkerPace, ForgetsTheFirstRepliesAtOnce) {
  WorkerPace pace;
  learn(pace, 2, 1, microseconds(100'000));  // reads weights that nobody has touched
  learn(pace, WorkerPace::kMinReplies, 1, microseconds(100));
  EXPECT_NEAR(pace.seconds_per_cost(), 100e-6, 5e-6);
}

TEST(WorkerPace, OneReplyThatWasHeldUpChangesLittle) {
  WorkerPace pace;
  learn(pace, 300, 1, microseconds(100));
  learn(pace, 1, 1, microseconds(20'000));
  EXPECT_LE(pace.seconds_per_cost(), 105e-6);
  EXPECT_GT(pace.seconds_per_cost(), 100e-6);
}

TEST(WorkerPace, LearnsInAboutTwoHundredRepliesThatAWorkerHasBecomeSlow) {
  for (const int times : {4, 10}) {
    WorkerPace pace;
    learn(pace, 300, 1, microseconds(100));
    learn(pace, 250, 1, microseconds(100 * times));
    EXPECT_GT(pace.seconds_per_cost(), 0.8 * times * 100e-6);
    EXPECT_LE(pace.seconds_per_cost(), times * 100e-6);
  }
}

/// What a reply takes whatever it computes must not make a worker slow which is asked for little each time.
TEST(WorkerPace, WeighsRepliesByWhatTheyCost) {
  WorkerPace small, mixed;
  for (int i = 0; i < 400; ++i) {
    learn(small, 1, 2, microseconds(50 + 2 * 100));
    learn(mixed, 1, i % 2 == 0 ? 1 : 3, microseconds(50 + (i % 2 == 0 ? 1 : 3) * 100));
  }
  EXPECT_NEAR(mixed.seconds_per_cost(), small.seconds_per_cost(), 2e-6);
}

TEST(WorkerPace, SpeedsAreRelativeToTheMedianInTenths) {
  const std::vector<double> speeds = relative_speeds(std::vector<double>{100e-6, 103e-6, 0, 400e-6, 5e-3, 1e-6});
  EXPECT_EQ(speeds.size(), 6U);
  EXPECT_NEAR(speeds[0], 1.0, 1e-12);
  EXPECT_NEAR(speeds[1], 1.0, 1e-12);
  EXPECT_NEAR(speeds[2], 1.0, 1e-12);  // not known
  EXPECT_NEAR(speeds[3], 0.3, 1e-12);
  EXPECT_NEAR(speeds[4], 0.0625, 1e-12);
  EXPECT_NEAR(speeds[5], 4.0, 1e-12);
}

}  // namespace
}  // namespace ferry
