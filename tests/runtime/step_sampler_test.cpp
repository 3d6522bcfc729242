#include "runtime/step_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "tests/support/test_stream.h"

namespace ferry {
namespace {

constexpr int64_t kStepVocab = 8;

using Drafts = std::vector<std::vector<TokenId>>;  // of each sequence

/// Sequences that have generated nothing yet, and the plan and logits of their next step.
struct MadeStep {
  explicit MadeStep(const Drafts& drafts, int32_t vocab_size_effective = kStepVocab) : sequences(drafts.size()) {
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
    logits = Matrix(DType::kF32, plan.num_rows, kStepVocab);
    on_host.emplace(stream, HostLogits::Options{.dtype = DType::kF32,
                                                .max_rows = plan.num_rows,
                                                .vocab_size = kStepVocab,
                                                .vocab_size_effective = vocab_size_effective});
  }
  void set_row(int64_t row, const std::array<float, kStepVocab>& values) {
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
  StepSampler sampler(pool, {.vocab_size = kStepVocab, .max_sequences = 4, .max_drafts = 3});
  const StepChoices choices = step.run(sampler);
  EXPECT_EQ((std::vector<int32_t>(choices.num_tokens.begin(), choices.num_tokens.end())), (std::vector<int32_t>{3, 1, 1, 2}));
  EXPECT_EQ((std::vector<TokenId>(choices.tokens.begin(), choices.tokens.end())), (std::vector<TokenId>{3, 4, 7, 2, 5, 2, 0}));
}

TEST(StepSampler, NeverChoosesPadding) {
  MadeStep step(Drafts{{3}}, 7);
  step.prefer(0, 3);
  step.prefer(1, 7);
  ThreadPool pool(1);
  StepSampler sampler(pool, {.vocab_size = kStepVocab, .max_sequences = 1, .max_drafts = 1});
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
    for (TokenId token = 0; token < kStepVocab; ++token)
      step.logits.view().row<float>(row)[token] = std::sin(static_cast<float>(7 * row * kStepVocab + token * token)) * 3.0F;
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
    StepSampler sampler(pool, {.vocab_size = kStepVocab, .max_sequences = kNumSequences, .max_drafts = 2});
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

/// Sequences in the middle of their completions, of a model that only looks at the last token; decoded to the end with as many
/// drafts as there are, of which `num_right` are what comes without any.
class DecodedRun {
 public:
  explicit DecodedRun(std::vector<SamplingParams> params) : params_(std::move(params)) {}

  struct Answer {
    std::vector<TokenId> tokens;
    std::vector<TokenLogprobs> logprobs;
  };
  /// `expected` answers are what drafts are made of; the `wrong`-th draft of each step is another token. None: no drafts.
  std::vector<Answer> run(int num_threads, const std::vector<Answer>* expected, int64_t wrong) {
    std::vector<Answer> answers(params_.size());
    ThreadPool pool(num_threads);
    StepSampler sampler(pool,
                        {.vocab_size = kStepVocab, .max_sequences = std::ssize(params_), .max_drafts = 3, .stop_ids = {0}});
    std::vector<Sequence> sequences(params_.size());
    for (std::size_t s = 0; s < params_.size(); ++s) {
      sequences[s].request.prompt = sequences[s].tokens = {1, static_cast<TokenId>(s % kStepVocab)};
      sequences[s].request.sampling = params_[s];
    }
    while (std::ranges::any_of(sequences, [](const Sequence& s) { return s.num_generated() < kLength; }))
      step(sampler, sequences, answers, expected, wrong);
    return answers;
  }

  static constexpr int64_t kLength = 30;

 private:
  static std::vector<TokenId> drafts_of(const Sequence& sequence, const Answer& expected, int64_t wrong) {
    const int64_t done = sequence.num_generated(), left = kLength - done;
    std::vector<TokenId> drafts(expected.tokens.begin() + done,
                                expected.tokens.begin() + done + std::min<int64_t>(3, left - 1));
    if (wrong < std::ssize(drafts))
      drafts[static_cast<std::size_t>(wrong)] = (drafts[static_cast<std::size_t>(wrong)] + 1) % kStepVocab;
    return drafts;
  }
  static void step(StepSampler& sampler, std::vector<Sequence>& sequences, std::vector<Answer>& answers,
                   const std::vector<Answer>* expected, int64_t wrong) {
    StepPlan plan;
    std::vector<std::size_t> open;
    std::vector<TokenId> last_tokens;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      Sequence& sequence = sequences[s];
      if (sequence.num_generated() >= kLength) continue;
      sequence.drafts = expected == nullptr ? std::vector<TokenId>() : drafts_of(sequence, (*expected)[s], wrong);
      plan.entries.push_back({.sequence = &sequence, .num_drafts = std::ssize(sequence.drafts), .samples = true});
      open.push_back(s);
      last_tokens.push_back(sequence.tokens.back());
      last_tokens.insert(last_tokens.end(), sequence.drafts.begin(), sequence.drafts.end());
    }
    Matrix logits(DType::kBF16, std::ssize(last_tokens), kStepVocab);
    for (std::size_t row = 0; row < last_tokens.size(); ++row) {
      for (int64_t id = 0; id < kStepVocab; ++id)
        logits.view().row<bfloat16>(static_cast<int64_t>(row))[id] =
            to_bfloat16(3.0F * std::sin(static_cast<float>(5 * id + last_tokens[row] * 7)));
    }
    test::TestStream stream{1};
    HostLogits on_host(
        stream,
        {.dtype = DType::kBF16, .max_rows = logits.rows(), .vocab_size = kStepVocab, .vocab_size_effective = kStepVocab});
    const StepSampler::Preparation preparation = sampler.prepare(plan);
    on_host.set(logits.view());
    const StepChoices choices = sampler.run(plan, on_host);
    std::size_t first = 0;
    for (std::size_t i = 0; i < open.size(); ++i) {
      Sequence& sequence = sequences[open[i]];
      const auto tokens = choices.tokens.subspan(first, static_cast<std::size_t>(choices.num_tokens[i]));
      first += tokens.size();
      sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
      Answer& answer = answers[open[i]];
      answer.tokens.insert(answer.tokens.end(), tokens.begin(), tokens.end());
      answer.logprobs.insert(answer.logprobs.end(), sequence.sampled.logprobs.begin(), sequence.sampled.logprobs.end());
      if (!params_of(sequence).logprobs) {
        EXPECT_TRUE(sequence.sampled.logprobs.empty());
      }
    }
  }
  static const SamplingParams& params_of(const Sequence& sequence) { return sequence.request.sampling; }

  const std::vector<SamplingParams> params_;
};

/// One request for each field that looks at earlier tokens, greedy and drawn.
std::vector<SamplingParams> params_with_memory() {
  std::vector<SamplingParams> all;
  for (const float temperature : {0.0F, 0.9F}) {
    SamplingParams plain;
    plain.temperature = temperature;
    plain.logprobs = 3;
    SamplingParams changed = plain;
    all.push_back(plain);
    all.push_back(changed), all.back().repetition_penalty = 1.7F;
    all.push_back(changed), all.back().presence_penalty = 1.2F;
    all.push_back(changed), all.back().frequency_penalty = 0.4F, all.back().logprobs.reset();
    all.push_back(changed), all.back().bad_words = {{1}, {2, 3}, {4, 5, 6}, {3, 3}, {6, 7}, {7, 6}};
    all.push_back(changed), all.back().min_tokens = 13, all.back().stop_token_ids = {2, 5};
    all.push_back(changed), all.back().min_p = 0.3F, all.back().logit_bias = {{3, 2.0F}, {6, -1.0F}};
    all.push_back(changed), all.back().allowed_token_ids = {2, 4, 6, 7};
  }
  for (std::size_t i = 0; i < all.size(); ++i) all[i].seed = i;
  return all;
}

TEST(StepSampler, RowsBehindDraftsSeeThem) {
  DecodedRun run(params_with_memory());
  const std::vector<DecodedRun::Answer> plain = run.run(1, nullptr, 0);
  for (const std::size_t first : {0U, 8U}) {
    for (std::size_t s = first + 1; s < first + 8; ++s)
      EXPECT_NE(plain[s].tokens, plain[first].tokens) << "request " << s << " is not changed by its field";
  }
  for (const int64_t wrong : {0, 1, 2, 9}) {
    for (const int num_threads : {1, 3}) {
      const std::vector<DecodedRun::Answer> drafted = run.run(num_threads, &plain, wrong);
      for (std::size_t s = 0; s < plain.size(); ++s) {
        EXPECT_EQ(drafted[s].tokens, plain[s].tokens) << "request " << s << ", wrong draft " << wrong;
        ASSERT_EQ(drafted[s].logprobs.size(), plain[s].logprobs.size());
        for (std::size_t i = 0; i < plain[s].logprobs.size(); ++i) {
          EXPECT_EQ(drafted[s].logprobs[i].chosen.id, drafted[s].tokens[i]);
          EXPECT_EQ(drafted[s].logprobs[i].chosen.logprob, plain[s].logprobs[i].chosen.logprob);
          ASSERT_EQ(drafted[s].logprobs[i].top.size(), 3U);
          EXPECT_EQ(drafted[s].logprobs[i].top[2].logprob, plain[s].logprobs[i].top[2].logprob);
        }
      }
    }
  }
}

TEST(StepSampler, TheHostOnlySeesRowsThatNeedIt) {
  MadeStep step(Drafts{{3, 4, 5}, {3}, {}});
  step.sequences[0].request.sampling.min_tokens = 2;
  step.sequences[2].request.sampling.logprobs = 0;
  for (int64_t row = 0; row < step.plan.num_rows; ++row) step.prefer(row, row < 3 ? static_cast<TokenId>(3 + row) : 7);
  ThreadPool pool(1);
  StepSampler sampler(pool, {.vocab_size = kStepVocab, .max_sequences = 3, .max_drafts = 3, .stop_ids = {0}});
  const StepChoices choices = step.run(sampler);
  EXPECT_EQ((std::vector<TokenId>(choices.tokens.begin(), choices.tokens.end())), (std::vector<TokenId>{3, 4, 5, 7, 7, 7}));
  for (int64_t row = 0; row < step.plan.num_rows; ++row)
    EXPECT_EQ(step.on_host->has_values(row), row < 2 || row == step.plan.num_rows - 1) << row;
  ASSERT_EQ(step.sequences[2].sampled.logprobs.size(), 1U);
  EXPECT_TRUE(step.sequences[2].sampled.logprobs[0].top.empty());
  EXPECT_EQ(step.sequences[2].sampled.logprobs[0].chosen.rank, 1);
}

TEST(StepSampler, SaysWhyThereIsNoToken) {
  MadeStep step(Drafts{{}, {}});
  step.set_row(0, {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN});
  step.sequences[1].request.sampling.bad_words = {{1}, {2}, {3}};
  step.sequences[1].request.sampling.allowed_token_ids = {1, 2, 3};
  ThreadPool pool(1);
  StepSampler sampler(pool, {.vocab_size = kStepVocab, .max_sequences = 3, .max_drafts = 3});
  const StepChoices choices = step.run(sampler);
  EXPECT_EQ((std::vector<TokenId>(choices.tokens.begin(), choices.tokens.end())), (std::vector<TokenId>{kNoToken, kNoToken}));
  ASSERT_TRUE(step.sequences[0].sampled.failure && step.sequences[1].sampled.failure);
  EXPECT_EQ(step.sequences[0].sampled.failure->code(), ErrorCode::kInternal);
  EXPECT_EQ(step.sequences[1].sampled.failure->code(), ErrorCode::kInvalidArgument);
}

/// What a small model thinks of the second token, given the first.
std::array<float, kStepVocab> logits_behind(TokenId token) {
  std::array<float, kStepVocab> logits{};
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(3 * i) + static_cast<float>(token));
  return logits;
}

std::array<double, kStepVocab> softmax(const std::array<float, kStepVocab>& logits, double temperature) {
  std::array<double, kStepVocab> p;
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
    StepSampler sampler(pool, {.vocab_size = kStepVocab, .max_sequences = 1, .max_drafts = 1}),
        plain(pool, {.vocab_size = kStepVocab, .max_sequences = 1, .max_drafts = 1});
    with.set_row(0, logits_behind(kStart));
    with.set_row(1, logits_behind(draft));
    std::array<std::array<int, kStepVocab>, kStepVocab> counts{};
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
