#include "runtime/server/preparations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/base/error.h"
#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"
#include "tests/support/manual_clock.h"

namespace ferry {
namespace {

using std::chrono::seconds;

/// Preparations that are told to drain, with ten seconds for it, by a thread of its own.
class DrainTest : public testing::Test {
 protected:
  ~DrainTest() override {
    while (drainer_.joinable() && !has_drained_) clock_.advance(std::chrono::hours(1));  // for a test that has failed
    if (drainer_.joinable()) drainer_.join();
  }
  void drain() {
    drainer_ = std::thread([this] {
      preparations_.drain(clock_.now() + seconds(10));
      has_drained_ = true;
    });
    clock_.wait_for_sleepers(1);
  }
  void wait_until_drained() {
    eventually([&] { return has_drained_.load(); }, "the end of drain()");
  }

  ManualClock clock_;
  Preparations preparations_{clock_};
  std::atomic<int> num_aborted_ = 0;
  std::atomic<bool> has_drained_ = false;
  const Preparations::Place place_ = preparations_.enter("anna", "r1", [this] { ++num_aborted_; });
  std::thread drainer_;
};

TEST_F(DrainTest, WaitsForThoseThatAreHereAndLetsNobodyIn) {
  drain();
  test::expect_error([&] { static_cast<void>(preparations_.enter("anna", "r2", [] {})); }, ErrorCode::kUnavailable,
                     {"shutting down"});
  clock_.advance(seconds(9));
  EXPECT_FALSE(has_drained_);
  preparations_.leave(place_);
  wait_until_drained();
  EXPECT_EQ(num_aborted_, 0);
}

TEST_F(DrainTest, AbortsWhoIsLateAndWaitsForThemToLeave) {
  drain();
  clock_.advance(seconds(10));
  eventually([&] { return num_aborted_ == 1; }, "the one that is late to be aborted");
  clock_.wait_for_sleepers(1);
  EXPECT_FALSE(has_drained_);
  preparations_.leave(place_);
  wait_until_drained();
}

TEST_F(DrainTest, WaitsForNobodyForEver) {
  drain();
  clock_.advance(seconds(10));
  clock_.advance_to_next_wake();
  wait_until_drained();
  EXPECT_EQ(num_aborted_, 1);
}

TEST(Preparations, WithNobodyHereADrainIsShort) {
  ManualClock clock;
  Preparations preparations(clock);
  preparations.drain(clock.now() + seconds(10));
}

}  // namespace
}  // namespace ferry
