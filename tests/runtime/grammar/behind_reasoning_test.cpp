#include "runtime/grammar/behind_reasoning.h"

#include <gtest/gtest.h>

#include "tests/support/cycle_grammar.h"

namespace ferry {
namespace {

constexpr TokenId kThinkEnd = 40;
constexpr TokenId kCallBegin = 41;
constexpr TokenId kLineBreak = 42;
constexpr TokenId kStop = 43;

/// Over 70 ids: behind the thought 3, then 5.
BehindReasoning grammar_behind(bool with_calls) {
  BehindReasoning::Tokens tokens{.vocab_size = 70, .think_end = kThinkEnd, .line_breaks = {kLineBreak}, .stop_ids = {kStop}};
  if (with_calls) tokens.call_begin = kCallBegin;
  const TokenId first = with_calls ? kCallBegin : 3;
  return {std::make_unique<test::CycleGrammar>(std::vector<std::vector<TokenId>>{{first}, {5}}, 2), std::move(tokens)};
}

std::vector<TokenId> allowed(BehindReasoning& grammar) {
  std::vector<uint32_t> bits(4, 0x12345678);
  if (!grammar.fill_mask(bits)) return {};
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < 128; ++id) {
    if ((bits[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
  }
  return ids;
}

TEST(BehindReasoning, AThoughtIsFreeButCannotEndTheCompletion) {
  BehindReasoning grammar = grammar_behind(false);
  const std::vector<TokenId> ids = allowed(grammar);
  EXPECT_EQ(ids.size(), 69U);
  EXPECT_FALSE(std::binary_search(ids.begin(), ids.end(), kStop));
  EXPECT_FALSE(grammar.accept(kStop));
  EXPECT_TRUE(grammar.accept(9));
  EXPECT_TRUE(grammar.accept(kCallBegin)) << "a token like others";
  EXPECT_EQ(allowed(grammar).size(), 69U);
}

TEST(BehindReasoning, TheGrammarHoldsBehindTheThought) {
  BehindReasoning grammar = grammar_behind(false);
  EXPECT_TRUE(grammar.accept(9));
  EXPECT_TRUE(grammar.accept(kThinkEnd));
  EXPECT_EQ(allowed(grammar), (std::vector<TokenId>{3, kLineBreak}));
  EXPECT_TRUE(grammar.accept(kLineBreak));
  EXPECT_FALSE(grammar.accept(9));
  EXPECT_TRUE(grammar.accept(3));
  EXPECT_EQ(allowed(grammar), (std::vector<TokenId>{5}));
  EXPECT_FALSE(grammar.is_terminated());
  EXPECT_TRUE(grammar.accept(5));
  EXPECT_TRUE(grammar.is_terminated());
}

TEST(BehindReasoning, ACallEndsAThought) {
  BehindReasoning grammar = grammar_behind(true);
  EXPECT_TRUE(grammar.accept(9));
  EXPECT_TRUE(grammar.accept(kCallBegin));
  EXPECT_EQ(allowed(grammar), (std::vector<TokenId>{5}));
}

TEST(BehindReasoning, RollsBackOverEveryBorder) {
  const std::vector<TokenId> ids = {9, kThinkEnd, kLineBreak, 3, 5};
  for (std::size_t length = 0; length <= ids.size(); ++length) {
    for (std::size_t num_back = 0; num_back <= length; ++num_back) {
      BehindReasoning grammar = grammar_behind(false);
      for (std::size_t i = 0; i < length; ++i) ASSERT_TRUE(grammar.accept(ids[i]));
      grammar.rollback(static_cast<int64_t>(num_back));
      for (std::size_t i = length - num_back; i < ids.size(); ++i) ASSERT_TRUE(grammar.accept(ids[i])) << length << num_back;
      EXPECT_TRUE(grammar.is_terminated());
    }
  }
}

}  // namespace
}  // namespace ferry
