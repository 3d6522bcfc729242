#include "runtime/server/front/coordinator_probe.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>

#include "runtime/server/http/http_client.h"
#include "tests/runtime/server/front/fake_coordinator.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// One coordinator, a pool that knows it, and looks at the clock that the test moves.
class CoordinatorProbeTest : public ::testing::Test {
 protected:
  void start() {
    const ProbeTimes times{.period = seconds(10), .deadline = seconds(2), .lost_after = seconds(60)};
    probe_.emplace(
        pool_, client_, mark_, times, [this] { ++num_looks_done_; }, clock_);
  }
  PoolReport::Coordinator seen() const { return pool_.report().coordinators.front(); }
  void wait_for_state(CoordinatorState state) {
    eventually([&] { return seen().state == state; }, std::string("the state to be ") + coordinator_state_name(state),
               [&] { return std::string(coordinator_state_name(seen().state)) + ": " + seen().reason; });
  }
  void wait_for_looks_done(int count) {
    eventually([&] { return num_looks_done_ >= count; }, std::to_string(count) + " looks",
               [&] { return std::to_string(num_looks_done_) + " were done"; });
  }
  /// Until the probe has asked so often; it waits for the answer then.
  void wait_for_questions(int count) {
    eventually([&] { return coordinator_.num_looks() >= count; }, std::to_string(count) + " questions",
               [&] { return std::to_string(coordinator_.num_looks()) + " have come"; });
    clock_.wait_for_sleepers(1);
  }
  /// Passes the pause until the next look, which is in two steps: the shortest one, and the rest of the period.
  void pass_pause() {
    clock_.wait_for_sleepers(1);
    clock_.advance(seconds(10));
  }

  test::FakeCoordinator coordinator_{test::answer_ok};
  ManualClock clock_;
  CoordinatorPool pool_{{{.http = coordinator_.address(), .grpc = ""}}};
  HttpClient client_;
  const FrontMark mark_;
  std::atomic<int> num_looks_done_ = 0;
  std::optional<CoordinatorProbe> probe_;
};

TEST_F(CoordinatorProbeTest, LooksOnceBeforeItIsThere) {
  start();
  EXPECT_EQ(seen().state, CoordinatorState::kServing);
  EXPECT_EQ(num_looks_done_, 1);
}

TEST_F(CoordinatorProbeTest, LooksAgainAfterEachPeriod) {
  start();
  coordinator_.set_health(503);
  pass_pause();
  wait_for_state(CoordinatorState::kRefusing);
  EXPECT_EQ(seen().reason.find("{"), 0U) << seen().reason;
  wait_for_looks_done(2);
  coordinator_.set_health(200);
  pass_pause();
  wait_for_state(CoordinatorState::kServing);
  EXPECT_EQ(seen().reason, "");
}

TEST_F(CoordinatorProbeTest, ReasonToLookMakesThePauseShort) {
  start();
  clock_.wait_for_sleepers(1);
  pool_.mark_down(0, "nobody was there");
  EXPECT_EQ(seen().state, CoordinatorState::kDown);
  clock_.advance(milliseconds(50));
  wait_for_state(CoordinatorState::kServing);
  EXPECT_EQ(coordinator_.num_looks(), 2);
}

TEST_F(CoordinatorProbeTest, WhoeverDoesNotAnswerInTimeIsDown) {
  start();
  coordinator_.set_health(0);
  pass_pause();
  wait_for_questions(2);
  EXPECT_EQ(seen().state, CoordinatorState::kServing) << "there is still time";
  clock_.advance(seconds(2));
  wait_for_state(CoordinatorState::kDown);
  EXPECT_EQ(seen().reason, "it did not answer in time");
}

TEST_F(CoordinatorProbeTest, EndsInTheMiddleOfALook) {
  start();
  coordinator_.set_health(0);
  pass_pause();
  wait_for_questions(2);
  probe_.reset();  // the clock stands still, and nobody answers
  EXPECT_EQ(seen().state, CoordinatorState::kServing) << "no look has told otherwise";
}

TEST_F(CoordinatorProbeTest, NobodyListeningIsDownAtOnce) {
  coordinator_.stop();
  start();
  EXPECT_EQ(seen().state, CoordinatorState::kDown);
  EXPECT_NE(seen().reason, "");
}

TEST_F(CoordinatorProbeTest, CallsOfWhoeverIsSilentForLongAreGivenUp) {
  start();
  std::atomic<bool> is_lost = false;
  const CallTraits traits;
  const auto call = pool_.open({.traits = traits, .on_lost = [&] { is_lost = true; }});
  coordinator_.set_health(0);
  for (int num_looks = 2; num_looks <= 5; ++num_looks) {  // after 12, 24, 36 and 48 seconds
    pass_pause();
    wait_for_questions(num_looks);
    clock_.advance(seconds(2));
    wait_for_looks_done(num_looks);
    EXPECT_FALSE(is_lost) << num_looks;
  }
  pass_pause();
  wait_for_questions(6);
  clock_.advance(seconds(2));
  eventually([&] { return is_lost.load(); }, "the call to be given up");
}

}  // namespace
}  // namespace ferry
