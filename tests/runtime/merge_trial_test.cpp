#include "runtime/merge_trial.h"

#include <gtest/gtest.h>

#include <functional>

namespace ferry {
namespace {

/// Two sources whose steps take so long without waiting for each other, and with it.
class Steps {
 public:
  Steps(double off_ms, double on_ms) : off_ms_(off_ms), on_ms_(on_ms) {}

  void run(int64_t num_steps) {
    for (int64_t i = 0; i < num_steps; ++i) {
      const double ms = trial.is_on() ? on_ms_ : off_ms_;
      if (trial.is_on()) ++num_on;
      trial.note_step(0, step_, 4, now_);
      if (has_other) trial.note_step(1, step_ + 1000, 4, now_);
      now_ += std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double, std::milli>(ms));
      ++step_;
    }
  }
  void change(double off_ms, double on_ms) {
    off_ms_ = off_ms;
    on_ms_ = on_ms;
  }

  MergeTrial trial;
  bool has_other = true;
  int64_t num_on = 0;

 private:
  double off_ms_, on_ms_;
  Deadline now_ = Deadline{} + std::chrono::hours(1);
  int64_t step_ = 5;
};

TEST(MergeTrial, KeepsWhatIsFasterAndTriesTheOtherSeldom) {
  for (const bool pays : {true, false}) {
    Steps steps(10, pays ? 8 : 12);
    steps.run(200);
    EXPECT_EQ(steps.trial.is_on(), pays);
    steps.num_on = 0;
    constexpr int64_t kMany = 20000;
    steps.run(kMany);
    const double share = static_cast<double>(steps.num_on) / kMany;
    EXPECT_NEAR(share, pays ? 1 : 0, 0.02);
  }
}

TEST(MergeTrial, OneAloneTriesNothing) {
  Steps steps(10, 8);
  steps.has_other = false;
  steps.run(5000);
  EXPECT_EQ(steps.num_on, 0);
}

TEST(MergeTrial, FindsOutWhenItDoesNotPayAnyMore) {
  Steps steps(10, 8);
  steps.run(200);
  ASSERT_TRUE(steps.trial.is_on());
  steps.change(8, 10);
  steps.run(2 * MergeTrial::kLeastStay + 200);
  EXPECT_FALSE(steps.trial.is_on());
}

TEST(MergeTrial, ASourceThatGoesEndsATrial) {
  Steps steps(10, 8);
  while (steps.num_on == 0) steps.run(1);
  EXPECT_TRUE(steps.trial.is_on()) << "on trial";
  steps.trial.forget(1);
  EXPECT_FALSE(steps.trial.is_on());
}

}  // namespace
}  // namespace ferry
