#include "runtime/grammar_masks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <thread>

#include "runtime/step_sampler.h"
#include "tests/support/cycle_grammar.h"
#include "tests/support/eventually.h"
#include "tests/support/test_stream.h"

namespace ferry {
namespace {

using test::CycleGrammar;

constexpr int64_t kMaskVocab = 70;  // a mask's last word is not full

/// Sequences with grammars (or without, where it is null) that decode, with drafts.
struct GrammarStep {
  struct Part {
    std::shared_ptr<TokenGrammar> grammar;
    std::vector<TokenId> drafts;
  };
  explicit GrammarStep(const std::vector<Part>& parts) : sequences(parts.size()) {
    for (std::size_t s = 0; s < parts.size(); ++s) {
      sequences[s].request.prompt = sequences[s].tokens = {1};
      sequences[s].request.grammar = parts[s].grammar;
      sequences[s].drafts = parts[s].drafts;
      const auto num_drafts = std::ssize(parts[s].drafts);
      plan.entries.push_back(
          {.sequence = &sequences[s], .num_rows = 1 + num_drafts, .num_drafts = num_drafts, .samples = true});
      num_rows += 1 + num_drafts;
    }
    plan.num_samples = std::ssize(parts);
  }
  /// Tokens of every sequence when `best` has the highest logits of each row, best first.
  StepChoices run(StepSampler& sampler, const std::vector<std::vector<TokenId>>& best) {
    logits = Matrix(DType::kF32, num_rows, kMaskVocab);
    for (std::size_t row = 0; row < best.size(); ++row) {
      float* values = logits.view().row<float>(static_cast<int64_t>(row));
      std::fill_n(values, kMaskVocab, -1.0F);
      for (std::size_t i = 0; i < best[row].size(); ++i) values[best[row][i]] = 9.0F - static_cast<float>(i);
    }
    const StepSampler::Preparation preparation = sampler.prepare(plan);
    on_host.set(logits.view());
    return sampler.run(plan, on_host);
  }

  std::vector<Sequence> sequences;
  StepPlan plan;
  int64_t num_rows = 0;
  Matrix logits;
  test::TestStream stream{1};
  HostLogits on_host{stream,
                     {.dtype = DType::kF32, .max_rows = 16, .vocab_size = kMaskVocab, .vocab_size_effective = kMaskVocab}};
};

std::vector<TokenId> ids_of_mask(std::span<const uint32_t> mask) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < kMaskVocab; ++id) {
    if ((mask[static_cast<std::size_t>(id) / 32] >> id % 32 & 1) != 0) ids.push_back(id);
  }
  return ids;
}

TEST(GrammarMasks, AreOfTheRowsBehindDraftsAndRollBack) {
  const auto grammar = std::make_shared<CycleGrammar>(std::vector<std::vector<TokenId>>{{3, 69}, {}, {4, 5, 31}}, 100);
  GrammarStep step({{nullptr, {7}}, {grammar, {69, 12, 8}}, {std::make_shared<CycleGrammar>(*grammar), {4}}});
  GrammarMasks masks(kMaskVocab);
  for (int again = 0; again < 50; ++again) {
    masks.begin(step.plan);
    if (again % 2 == 0) std::this_thread::yield();
    masks.finish();
    const std::vector<std::vector<TokenId>> expected{{}, {}, {3, 69}, {}, {4, 5, 31}, {}, {3, 69}, {}};
    for (int64_t row = 0; row < step.num_rows; ++row) {
      const std::span<const uint32_t> mask = masks.of_row(row);
      EXPECT_EQ(mask.empty() ? std::vector<TokenId>() : ids_of_mask(mask), expected[static_cast<std::size_t>(row)]) << row;
    }
    EXPECT_TRUE(grammar->accepted.empty());
  }
  EXPECT_EQ(grammar->num_masks, 150) << "none behind the draft that is refused";
}

TEST(GrammarMasks, StepsWithoutGrammarsHaveNone) {
  GrammarStep with({{std::make_shared<CycleGrammar>(std::vector<std::vector<TokenId>>{{3}}, 9), {}}}), without({{nullptr, {}}});
  GrammarMasks masks(kMaskVocab);
  for (int again = 0; again < 3; ++again) {
    masks.begin(with.plan);
    masks.finish();
    EXPECT_FALSE(masks.of_row(0).empty());
    masks.begin(without.plan);
    masks.finish();
    EXPECT_TRUE(masks.of_row(0).empty());
  }
}

/// Its mask comes when it is told to.
class SlowGrammar final : public TokenGrammar {
 public:
  bool fill_mask(std::span<uint32_t>) override {
    begun.set_value();
    may_end.get_future().wait();
    return false;
  }
  bool accept(TokenId) override { return true; }
  void rollback(int64_t) override {}
  bool is_terminated() const override { return false; }

  std::promise<void> begun, may_end;
};

TEST(GrammarMasks, AreFilledMeanwhile) {
  const auto grammar = std::make_shared<SlowGrammar>();
  GrammarStep step({{grammar, {}}});
  GrammarMasks masks(kMaskVocab);
  masks.begin(step.plan);
  EXPECT_EQ(grammar->begun.get_future().wait_for(kTestLimit), std::future_status::ready);
  grammar->may_end.set_value();
  masks.finish();
  EXPECT_TRUE(masks.of_row(0).empty());
}

std::vector<TokenId> chosen_tokens(const StepChoices& choices) { return {choices.tokens.begin(), choices.tokens.end()}; }

TEST(GrammarMasks, ChosenTokensKeepToTheGrammar) {
  const auto grammar = std::make_shared<CycleGrammar>(std::vector<std::vector<TokenId>>{{3, 69}, {}, {4, 5, 31}}, 100);
  GrammarStep step({{grammar, {69, 12, 8}}, {nullptr, {}}});
  ThreadPool pool(2);
  StepSampler sampler(pool, {.vocab_size = kMaskVocab, .max_sequences = 2, .max_drafts = 3});
  const StepChoices choices = step.run(sampler, {{8, 69, 3}, {12}, {8, 31, 4}, {8}, {60}});
  EXPECT_EQ(chosen_tokens(choices), (std::vector<TokenId>{69, 12, 31, 60})) << "the third draft is right but not allowed";
  EXPECT_EQ(grammar->accepted, (std::vector<TokenId>{69, 12, 31}));
  EXPECT_TRUE(step.on_host.has_values(0));
  EXPECT_FALSE(step.on_host.has_values(1)) << "a row in which all is allowed is no other than one without grammar";
  EXPECT_FALSE(step.on_host.has_values(4));
}

TEST(GrammarMasks, TheLastTokenOfAGrammarIsTheLastOfTheStep) {
  const auto grammar = std::make_shared<CycleGrammar>(std::vector<std::vector<TokenId>>{{}}, 2);
  GrammarStep step({{grammar, {5, 6, 7}}});
  ThreadPool pool(1);
  StepSampler sampler(pool, {.vocab_size = kMaskVocab, .max_sequences = 1, .max_drafts = 3});
  EXPECT_EQ(chosen_tokens(step.run(sampler, {{5}, {6}, {7}, {8}})), (std::vector<TokenId>{5, 6}));
  EXPECT_TRUE(grammar->is_terminated());
}

TEST(GrammarMasks, FailuresEndTheSequenceAlone) {
  const auto throwing = std::make_shared<CycleGrammar>(std::vector<std::vector<TokenId>>{{3}}, 9);
  throwing->throws = true;
  const auto strict = std::make_shared<CycleGrammar>(std::vector<std::vector<TokenId>>{{3}}, 9);
  GrammarStep step({{throwing, {}}, {nullptr, {}}, {strict, {}}});
  step.sequences[2].request.sampling.allowed_token_ids = {4};
  ThreadPool pool(1);
  StepSampler sampler(pool, {.vocab_size = kMaskVocab, .max_sequences = 3, .max_drafts = 0});
  EXPECT_EQ(chosen_tokens(step.run(sampler, {{5}, {6}, {7}})), (std::vector<TokenId>{kNoToken, 6, kNoToken}));
  ASSERT_TRUE(step.sequences[0].sampled.failure.has_value());
  EXPECT_EQ(std::string(step.sequences[0].sampled.failure->what()), "the request's grammar failed: no mask");
  EXPECT_FALSE(step.sequences[1].sampled.failure.has_value());
  ASSERT_TRUE(step.sequences[2].sampled.failure.has_value());
  EXPECT_EQ(step.sequences[2].sampled.failure->code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ferry
