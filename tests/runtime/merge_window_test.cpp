#include "runtime/merge_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

namespace ferry {
namespace {

using std::chrono::microseconds;

constexpr int64_t kTokens = 8;

Deadline at(int64_t us) { return Deadline{} + std::chrono::hours(1) + microseconds(us); }

/// Two coordinators that decode, and one worker that answers them by a MergeWindow, in made-up time.
class TwoCoordinators {
 public:
  struct Times {
    int64_t experts_us = 300;      // of one request, and of merged ones
    int64_t coordinator_us = 100;  // from a reply to the next rows
    int64_t head_us = 400;         // from the last layer's reply to the next step
    double jitter = 0.2;           // of the coordinator's times
  };
  TwoCoordinators(int num_layers, Times times, bool waits)
      : num_layers_(num_layers), times_(times), waits_(waits), sources_(2) {
    sources_[1].arrives_us = 37 * times.experts_us / 10;  // in the middle of the other one's step
  }

  /// The share of answers that were merged, in so many steps of each.
  double merged_share(int64_t num_steps) {
    while (sources_[0].step < num_steps || sources_[1].step < num_steps) advance();
    return static_cast<double>(num_merged_) / static_cast<double>(num_answers_);
  }
  int64_t now_us() const { return now_us_; }

 private:
  struct Source {
    int64_t step = 0;
    int32_t layer = 0;
    std::optional<int64_t> arrives_us = 0;  // nothing: it waits
    int64_t held_until_us = 0;
  };

  void take_arrivals() {
    for (int i = 0; i < 2; ++i) {
      Source& s = sources_[static_cast<std::size_t>(i)];
      if (!s.arrives_us || *s.arrives_us > now_us_) continue;
      window_.note_rows(i, s.step, s.layer, kTokens, at(*s.arrives_us));
      const std::optional<Deadline> held = waits_ ? window_.hold(i, at(*s.arrives_us)) : std::nullopt;
      s.held_until_us = held ? std::chrono::duration_cast<microseconds>(*held - at(0)).count() : 0;
      s.arrives_us.reset();
    }
  }
  void advance() {
    take_arrivals();
    std::vector<int> waiting, ready;
    for (int i = 0; i < 2; ++i) {
      if (!sources_[static_cast<std::size_t>(i)].arrives_us) waiting.push_back(i);
    }
    const bool together = waiting.size() == 2 && sources_[0].layer == sources_[1].layer;
    for (const int i : waiting) {
      if (together || sources_[static_cast<std::size_t>(i)].held_until_us <= now_us_) ready.push_back(i);
    }
    if (ready.empty()) return wait(waiting);
    if (!together) ready.resize(1);
    now_us_ += times_.experts_us;
    num_answers_ += std::ssize(ready);
    if (together) num_merged_ += 2;
    for (const int i : ready) reply(i);
  }
  void wait(const std::vector<int>& waiting) {
    int64_t next = INT64_MAX;
    for (const Source& s : sources_) next = std::min(next, s.arrives_us.value_or(INT64_MAX));
    for (const int i : waiting) next = std::min(next, sources_[static_cast<std::size_t>(i)].held_until_us);
    now_us_ = std::max(next, now_us_);
  }
  void reply(int i) {
    Source& s = sources_[static_cast<std::size_t>(i)];
    window_.note_reply(i, at(now_us_));
    const bool is_last = ++s.layer == num_layers_;
    if (is_last) {
      s.layer = 0;
      ++s.step;
    }
    std::uniform_real_distribution<double> spread(1 - times_.jitter, 1 + times_.jitter);
    const auto own_us = static_cast<double>(is_last ? times_.head_us : times_.coordinator_us);
    s.arrives_us = now_us_ + static_cast<int64_t>(own_us * spread(random_));
  }

  const int num_layers_;
  const Times times_;
  const bool waits_;
  MergeWindow window_;
  std::vector<Source> sources_;
  std::mt19937 random_{1};
  int64_t now_us_ = 0, num_answers_ = 0, num_merged_ = 0;
};

TEST(MergeWindow, CoordinatorsOfOnePaceFallIntoStep) {
  for (const int num_layers : {4, 8, 40}) {
    EXPECT_LT(TwoCoordinators(num_layers, {}, false).merged_share(50), 0.3) << num_layers;
    EXPECT_GT(TwoCoordinators(num_layers, {}, true).merged_share(50), 0.8) << num_layers;
  }
}

TEST(MergeWindow, NobodyWaitsForPromptsNorDoTheyWait) {
  for (const bool own_is_prompt : {true, false}) {
    MergeWindow window;
    for (int64_t step = 0; step < 3; ++step) {  // one tells its pace: a step each 10 ms
      window.note_rows(1, step, 0, own_is_prompt ? kTokens : 1000, at(10000 * step));
      window.note_reply(1, at(10000 * step + 100));
    }
    window.note_rows(0, 7, 0, own_is_prompt ? 1000 : kTokens, at(27000));
    EXPECT_EQ(window.hold(0, at(27000)), std::nullopt);
  }
}

/// A window that knows source 1 for beginning a step each 10 ms, the last one at 20 ms.
MergeWindow window_of_one_pace() {
  MergeWindow window;
  for (int64_t step = 0; step < 3; ++step) {
    window.note_rows(1, step, 0, kTokens, at(10000 * step));
    window.note_reply(1, at(10000 * step + 100));
    window.note_rows(1, step, 1, kTokens, at(10000 * step + 300));
    window.note_reply(1, at(10000 * step + 400));
  }
  return window;
}

TEST(MergeWindow, WhoIsLessThanHalfAStepAheadWaitsAndNobodyElse) {
  MergeWindow ahead = window_of_one_pace();
  ahead.note_rows(0, 0, 0, kTokens, at(27000));
  const std::optional<Deadline> until = ahead.hold(0, at(27000));
  ASSERT_TRUE(until);
  EXPECT_GT(*until, at(30000)) << "when the other begins its next step, and a little more";
  EXPECT_LT(*until, at(32000));

  MergeWindow behind = window_of_one_pace();
  behind.note_rows(0, 0, 0, kTokens, at(23000));
  EXPECT_EQ(behind.hold(0, at(23000)), std::nullopt) << "it is for the other to wait";
}

TEST(MergeWindow, WithinAStepOneWaitsAsLongAsTheOtherUsuallyTakes) {
  MergeWindow window = window_of_one_pace();
  window.note_rows(1, 3, 0, kTokens, at(30000));
  window.note_reply(1, at(30100));
  window.note_rows(0, 0, 1, kTokens, at(30250));
  const std::optional<Deadline> until = window.hold(0, at(30250));
  ASSERT_TRUE(until);
  EXPECT_GE(*until, at(30300));
  EXPECT_LE(*until, at(30500));
  window.note_rows(2, 0, 1, kTokens, at(31000));
  EXPECT_EQ(window.hold(2, at(31000)), std::nullopt) << "it is late: perhaps it has nothing to do";
}

TEST(MergeWindow, AWaitHasAnEndAndSoHasASource) {
  MergeWindow window;
  for (int64_t step = 0; step < 3; ++step) window.note_rows(1, step, 0, kTokens, at(400000 * step));  // slow steps
  window.note_rows(0, 0, 0, kTokens, at(1050000));
  EXPECT_EQ(window.hold(0, at(1050000)), at(1050000) + MergeWindow::kMostWait);
  window.forget(1);
  EXPECT_EQ(window.hold(0, at(1050000)), std::nullopt);
}

}  // namespace
}  // namespace ferry
