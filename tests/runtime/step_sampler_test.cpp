#include "runtime/step_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "tests/support/test_stream.h"

namespace ferry {
namespace {

constexpr int64_t kVocab = 8;

using Drafts = std::vector<std::vector<TokenId>>;  // of each sequence

/// Sequences that have generated nothing yet, and the plan and logits of their next step.
struct MadeStep {
  explicit MadeStep(const Drafts& drafts, int32_t vocab_size_effective = kVocab) : sequences(drafts.size()) {
    for (std::size_t s = 0; s < drafts.size(); ++s) {
      sequences[s].request.prompt = sequences[s].tokens = {1};
      sequences[s].drafts = drafts[s];
      const auto num_drafts = static_cast<int64_t>(drafts[s].size());
      plan.entries.push_back({.sequence = &sequences[s],
                              .first_row = plan.num_rows,
                              .num_rows = 1 + num_drafts,
                              .num_drafts = num_drafts,
                              .samples = true});
      plan.num_rows += 1 + num_drafts;
      ++plan.num_samples;
    }
    logits = Matrix(DType::kF32, plan.num_rows, kVocab);
    on_host.emplace(stream, HostLogits::Options{.dtype = DType::kF32,
                                                .max_rows = plan.num_rows,
                                                .vocab_size = kVocab,
                                                .vocab_size_effective = vocab_size_effective});
  }
  void set_row(int64_t row, const std::array<float, kVocab>& values) {
    std::copy(values.begin(), values.end(), logits.view().row<float>(row));
  }
  /// Makes `token` the best of the row.
  void prefer(int64_t row, TokenId token) { logits.view().row<float>(row)[token] = 5.0F; }

  StepChoices run(StepSampler& sampler) {
    const StepSampler::Preparation preparation = sampler.prepare(plan);
    on_host->set(logits.view());
    return sampler.run(plan, *on_host);
  }

  std::vector<Sequence> sequences;
  StepPlan plan;
  Matrix logits;
  test::TestStream stream{1};
  std::optional<HostLogits> on_host;
};

TEST(StepSampler, GreedyGoesOnAsLongAsDraftsAreRight) {
  MadeStep step(Drafts{{3, 4, 5}, {}, {6, 6}, {2}});
  const std::vector<TokenId> best{3, 4, 7, 1, /**/ 2, /**/ 5, 6, 6, /**/ 2, 0};
  for (std::size_t row = 0; row < best.size(); ++row) step.prefer(static_cast<int64_t>(row), best[row]);
  ThreadPool pool(1);
  StepSampler sampler(pool, {.vocab_size = kVocab, .max_sequences = 4, .max_drafts = 3});
  const StepChoices choices = step.run(sampler);
  EXPECT_EQ((std::vector<int32_t>(choices.num_tokens.begin(), choices.num_tokens.end())), (std::vector<int32_t>{3, 1, 1, 2}));
  EXPECT_EQ((std::vector<TokenId>(choices.tokens.begin(), choices.tokens.end())), (std::vector<TokenId>{3, 4, 7, 2, 5, 2, 0}));
}

TEST(StepSampler, NeverChoosesPadding) {
  MadeStep step(Drafts{{3}}, 7);
  step.prefer(0, 3);
  step.prefer(1, 7);
  ThreadPool pool(1);
  StepSampler sampler(pool, {.vocab_size = kVocab, .max_sequences = 1, .max_drafts = 1});
  for (const float temperature : {0.0F, 0.01F}) {
    step.sequences[0].request.sampling.temperature = temperature;
    const StepChoices choices = step.run(sampler);
    ASSERT_EQ(choices.tokens.size(), 2U);
    EXPECT_EQ(choices.tokens[0], 3);
    EXPECT_NE(choices.tokens[1], 7);
  }
}

// Greedy and drawn ones, with right drafts and wrong ones, in any order on any number of threads.
TEST(StepSampler, ThreadsChangeNothing) {
  constexpr std::size_t kNumSequences = 40;
  MadeStep step(Drafts(kNumSequences, {5, 2}));
  for (int64_t row = 0; row < step.plan.num_rows; ++row) {
    for (TokenId token = 0; token < kVocab; ++token)
      step.logits.view().row<float>(row)[token] = std::sin(static_cast<float>(7 * row * kVocab + token * token)) * 3.0F;
    if (row % 2 == 0) step.prefer(row, row % 3 == 0 ? 5 : 2);
  }
  std::size_t num_drawn = 0;
  for (std::size_t s = 0; s < kNumSequences; ++s) {
    step.sequences[s].request.sampling.temperature = s % 3 == 0 ? 0.0F : 0.7F;
    step.sequences[s].request.sampling.seed = s;
    num_drawn += s % 3 == 0 ? 0 : 1;
  }
  ASSERT_GT(num_drawn, 20U);
  std::vector<TokenId> expected;
  std::vector<int32_t> expected_counts;
  for (const int num_threads : {1, 2, 3, 11}) {
    ThreadPool pool(num_threads);
    StepSampler sampler(pool, {.vocab_size = kVocab, .max_sequences = kNumSequences, .max_drafts = 2});
    for (int again = 0; again < 20; ++again) {
      const StepChoices choices = step.run(sampler);
      const std::vector<TokenId> tokens(choices.tokens.begin(), choices.tokens.end());
      const std::vector<int32_t> counts(choices.num_tokens.begin(), choices.num_tokens.end());
      if (expected.empty()) {
        expected = tokens;
        expected_counts = counts;
        for (const int32_t count : {1, 2, 3}) EXPECT_GT(std::ranges::count(counts, count), 0) << count << " tokens";
      }
      ASSERT_EQ(tokens, expected) << num_threads << " threads";
      ASSERT_EQ(counts, expected_counts);
    }
  }
}

/// What a small model thinks of the second token, given the first.
std::array<float, kVocab> logits_behind(TokenId token) {
  std::array<float, kVocab> logits{};
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(3 * i) + static_cast<float>(token));
  return logits;
}

std::array<double, kVocab> softmax(const std::array<float, kVocab>& logits, double temperature) {
  std::array<double, kVocab> p;
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += p[i] = std::exp(static_cast<double>(logits[i]) / temperature);
  for (double& x : p) x /= sum;
  return p;
}

// Pearson's test of the first two tokens, 64 cells: with the draft's row where the draft is drawn, and with a step of its own
// where it is not. The bound is the 99.9th percentile of 63 degrees of freedom. The tokens are also those that the same seed
// gives without drafts.
TEST(StepSampler, DrawsWithDraftsHaveTheModelsDistribution) {
  constexpr int kNumDraws = 100'000;
  constexpr double kBound = 103.4;
  constexpr TokenId kStart = 11;
  const float temperature = 0.8F;
  for (const TokenId draft : {TokenId{2}, TokenId{4}}) {  // one likely, one not
    MadeStep with(Drafts{{draft}}), without(Drafts{{}});
    ThreadPool pool(1);
    StepSampler sampler(pool, {.vocab_size = kVocab, .max_sequences = 1, .max_drafts = 1}),
        plain(pool, {.vocab_size = kVocab, .max_sequences = 1, .max_drafts = 1});
    with.set_row(0, logits_behind(kStart));
    with.set_row(1, logits_behind(draft));
    std::array<std::array<int, kVocab>, kVocab> counts{};
    int num_accepted = 0;
    for (uint64_t seed = 0; seed < kNumDraws; ++seed) {
      for (MadeStep* step : {&with, &without}) {
        step->sequences[0].request.sampling.temperature = temperature;
        step->sequences[0].request.sampling.seed = seed;
        step->sequences[0].tokens.resize(1);
      }
      const StepChoices choices = with.run(sampler);
      const TokenId first = choices.tokens[0];
      num_accepted += choices.tokens.size() == 2 ? 1 : 0;
      const auto decode = [&](TokenId last) {
        without.set_row(0, logits_behind(last));
        return without.run(plain).tokens[0];
      };
      ASSERT_EQ(first, decode(kStart)) << "seed " << seed;
      without.sequences[0].tokens.push_back(first);
      const TokenId plain_second = decode(first);
      const TokenId second = choices.tokens.size() == 2 ? choices.tokens[1] : plain_second;
      ASSERT_EQ(second, plain_second) << "seed " << seed;
      ++counts[static_cast<std::size_t>(first)][static_cast<std::size_t>(second)];
    }
    const auto p = softmax(logits_behind(kStart), temperature);
    double statistic = 0;
    for (std::size_t a = 0; a < p.size(); ++a) {
      const auto behind = softmax(logits_behind(static_cast<TokenId>(a)), temperature);
      for (std::size_t b = 0; b < p.size(); ++b) {
        const double expected = kNumDraws * p[a] * behind[b];
        statistic += (counts[a][b] - expected) * (counts[a][b] - expected) / expected;
      }
    }
    EXPECT_LT(statistic, kBound) << "draft " << draft;
    const double expected_accepted = kNumDraws * p[static_cast<std::size_t>(draft)];
    EXPECT_NEAR(num_accepted, expected_accepted, 4 * std::sqrt(expected_accepted)) << "draft " << draft;
  }
}

}  // namespace
}  // namespace ferry
