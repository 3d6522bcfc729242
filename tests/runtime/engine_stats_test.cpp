#include "runtime/engine_stats.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

using std::chrono::milliseconds;

int64_t num_values(const Histogram& histogram) {
  int64_t count = 0;
  for (const int64_t each : histogram.counts()) count += each;
  return count;
}

class EngineStatsTest : public ::testing::Test {
 protected:
  static SchedulerOptions options() {
    SchedulerOptions options;
    options.max_context = 1000;
    return options;
  }
  /// `t` ms after the start.
  static Sequence::TimePoint at(int64_t t) { return Sequence::TimePoint() + milliseconds(1000 + t); }

  static void prepare(Sequence& sequence, int64_t num_prompt) {
    sequence.request.prompt.assign(static_cast<std::size_t>(num_prompt), TokenId{1});
    sequence.request.sampling.max_tokens = 20;
    sequence.tokens = sequence.request.prompt;
    sequence.arrival = at(0);
    sequence.first_scheduled = at(100);
  }
  /// A step in which the sequences get `num_new` tokens each, and that computes `num_prefill` of prompts.
  void step(std::initializer_list<std::pair<Sequence*, int64_t>> gains, int64_t num_prefill, int64_t t) {
    StepPlan plan;
    plan.num_rows = 1;
    plan.num_prefill_tokens = num_prefill;
    for (const auto& [sequence, num_new] : gains) {
      sequence->num_new = num_new;
      sequence->tokens.resize(sequence->tokens.size() + static_cast<std::size_t>(num_new));
      if (num_new > 0 && !sequence->first_token) sequence->first_token = at(t);
      plan.entries.push_back({.sequence = sequence});
    }
    stats_.add_step(plan, at(t));
  }

  EngineStats stats_{options()};
};

TEST_F(EngineStatsTest, ARequestsLife) {
  Sequence sequence;
  prepare(sequence, 7);
  step({{&sequence, 0}}, 4, 200);
  EXPECT_EQ(stats_.prompt_tokens, 0);
  step({{&sequence, 1}}, 3, 300);
  step({{&sequence, 2}}, 0, 350);
  step({{&sequence, 1}}, 0, 450);
  EXPECT_EQ(stats_.prompt_tokens, 7);
  EXPECT_EQ(stats_.generation_tokens, 4);
  EXPECT_EQ(num_values(stats_.step_tokens), 4);
  EXPECT_EQ(stats_.step_tokens.sum(), 4 + (3 + 1) + 2 + 1);
  EXPECT_EQ(num_values(stats_.first_token_s), 1);
  EXPECT_NEAR(stats_.first_token_s.sum(), 0.3, 1e-9);
  EXPECT_EQ(num_values(stats_.between_tokens_s), 2);
  EXPECT_NEAR(stats_.between_tokens_s.sum(), 0.05 + 0.1, 1e-9);

  sequence.finish_reason = FinishReason::kStop;
  sequence.finished = at(450);
  sequence.num_preemptions = 3;
  stats_.add_finished(sequence);
  EXPECT_EQ(stats_.count_of(FinishReason::kStop), 1);
  EXPECT_EQ(stats_.prompt_lengths.sum(), 7);
  EXPECT_EQ(stats_.computed_prompt_tokens.sum(), 7);
  EXPECT_EQ(stats_.completion_lengths.sum(), 4);
  EXPECT_EQ(stats_.longest_completions.sum(), 4);
  EXPECT_EQ(stats_.num_completions.sum(), 1);
  EXPECT_EQ(stats_.max_tokens.sum(), 20);
  EXPECT_EQ(stats_.num_preemptions.sum(), 3);
  EXPECT_NEAR(stats_.queue_s.sum(), 0.1, 1e-9);
  EXPECT_NEAR(stats_.prefill_s.sum(), 0.2, 1e-9);
  EXPECT_NEAR(stats_.decode_s.sum(), 0.15, 1e-9);
  EXPECT_NEAR(stats_.inference_s.sum(), 0.35, 1e-9);
  EXPECT_NEAR(stats_.total_s.sum(), 0.45, 1e-9);
  EXPECT_NEAR(stats_.per_token_s.sum(), 0.15 / 3, 1e-9);
}

TEST_F(EngineStatsTest, ARequestThatNeverRanHasNoTimesOfRunning) {
  Sequence sequence;
  prepare(sequence, 7);
  sequence.first_scheduled.reset();
  sequence.finish_reason = FinishReason::kAborted;
  sequence.finished = at(500);
  stats_.add_finished(sequence);
  EXPECT_EQ(stats_.count_of(FinishReason::kAborted), 1);
  EXPECT_NEAR(stats_.queue_s.sum(), 0.5, 1e-9);
  EXPECT_NEAR(stats_.total_s.sum(), 0.5, 1e-9);
  for (const Histogram* each : {&stats_.prefill_s, &stats_.decode_s, &stats_.inference_s, &stats_.per_token_s,
                                &stats_.computed_prompt_tokens, &stats_.first_token_s})
    EXPECT_EQ(num_values(*each), 0);
}

TEST_F(EngineStatsTest, SiblingsAreOneOfTheirKind) {
  const auto siblings = std::make_shared<Siblings>(Siblings{.num_all = 3});
  for (const int64_t length : {2, 9, 4}) {
    Sequence sequence;
    prepare(sequence, 7);
    sequence.request.siblings = siblings;
    sequence.tokens.resize(static_cast<std::size_t>(7 + length));
    sequence.finish_reason = FinishReason::kLength;
    EXPECT_EQ(num_values(stats_.num_completions), 0);
    stats_.add_finished(sequence);
  }
  EXPECT_EQ(num_values(stats_.completion_lengths), 3);
  EXPECT_EQ(num_values(stats_.num_completions), 1);
  EXPECT_EQ(stats_.num_completions.sum(), 3);
  EXPECT_EQ(stats_.longest_completions.sum(), 9);
}

TEST(TokenBounds, AreOneTwoFive) {
  EXPECT_EQ(token_bounds(0), std::vector<double>());
  EXPECT_EQ(token_bounds(1), std::vector<double>({1}));
  EXPECT_EQ(token_bounds(99), std::vector<double>({1, 2, 5, 10, 20, 50}));
  EXPECT_EQ(token_bounds(262144).back(), 200000);
}

TEST(TouchCounter, CountsExpertsOfEachStep) {
  ExpertLoad load(2, 4);
  load.add(0, 3, 5);  // before anybody counts
  TouchCounter touched(load);
  load.add(0, 0, 2);
  load.add(0, 3, 1);
  load.add(1, 2, 7);
  touched.add_step(load);
  EXPECT_EQ(touched.count().experts, 3);
  EXPECT_EQ(touched.count().layers, 2);
  load.add(1, 2, 1);
  touched.add_step(load);
  touched.add_step(load);
  EXPECT_EQ(touched.count().experts, 4);
  EXPECT_EQ(touched.count().layers, 3);
}

}  // namespace
}  // namespace ferry
