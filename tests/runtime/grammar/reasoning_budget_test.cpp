#include "runtime/grammar/reasoning_budget.h"

#include <gtest/gtest.h>

#include "tests/fuzz/small_tokenizer.h"
#include "tests/support/cycle_grammar.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

const Tokenizer& budget_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(test::source_folder() / "launch/demo");
  return tokenizer;
}

TokenId think_end() { return *budget_tokenizer().id_of("</think>"); }

/// The only id that may come next; nothing: several may.
std::optional<TokenId> forced(TokenGrammar& grammar) {
  std::vector<uint32_t> bits(static_cast<std::size_t>(budget_tokenizer().size() + 31) / 32, 0x12345678);
  if (!grammar.fill_mask(bits)) return std::nullopt;
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < budget_tokenizer().size(); ++id) {
    if ((bits[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
  }
  return ids.size() == 1 ? std::optional(ids.front()) : std::nullopt;
}

TEST(ReasoningBudget, TheLastTokenOfTheBudgetIsTheEnd) {
  ReasoningBudget grammar(nullptr, 3, ReplyMarkers(budget_tokenizer()));
  EXPECT_EQ(forced(grammar), std::nullopt);
  EXPECT_TRUE(grammar.accept(7));
  EXPECT_EQ(forced(grammar), std::nullopt);
  EXPECT_TRUE(grammar.accept(7));
  EXPECT_EQ(forced(grammar), think_end());
  EXPECT_FALSE(grammar.accept(7));
  EXPECT_TRUE(grammar.accept(think_end()));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(forced(grammar), std::nullopt);
    EXPECT_TRUE(grammar.accept(7));
  }
  EXPECT_FALSE(grammar.is_terminated());
}

TEST(ReasoningBudget, AThoughtThatEndsEarlierIsFree) {
  ReasoningBudget grammar(nullptr, 3, ReplyMarkers(budget_tokenizer()));
  EXPECT_TRUE(grammar.accept(7));
  EXPECT_TRUE(grammar.accept(think_end()));
  EXPECT_EQ(forced(grammar), std::nullopt);
  EXPECT_TRUE(grammar.accept(7));
  grammar.rollback(2);
  EXPECT_TRUE(grammar.accept(7));
  EXPECT_EQ(forced(grammar), think_end()) << "what ended the thought was taken back";
  grammar.rollback(2);
  EXPECT_EQ(forced(grammar), std::nullopt);
}

TEST(ReasoningBudget, WhatIsTakenBackBehindAThoughtLeavesItEnded) {
  ReasoningBudget grammar(nullptr, 3, ReplyMarkers(budget_tokenizer()));
  EXPECT_TRUE(grammar.accept(7));
  EXPECT_TRUE(grammar.accept(think_end()));
  EXPECT_TRUE(grammar.accept(7));
  grammar.rollback(1);
  EXPECT_TRUE(grammar.accept(7));
  EXPECT_EQ(forced(grammar), std::nullopt);
}

TEST(ReasoningBudget, NoBudgetEndsAtOnce) {
  for (const int64_t budget : {0, 1}) {
    ReasoningBudget grammar(nullptr, budget, ReplyMarkers(budget_tokenizer()));
    EXPECT_EQ(forced(grammar), think_end()) << budget;
  }
}

TEST(ReasoningBudget, AnotherGrammarHoldsAsWell) {
  using Cycle = test::CycleGrammar;
  ReasoningBudget grammar(std::make_shared<Cycle>(std::vector<std::vector<TokenId>>{{7}, {think_end()}, {9}}, 3), 2,
                          ReplyMarkers(budget_tokenizer()));
  EXPECT_EQ(forced(grammar), 7);
  EXPECT_FALSE(grammar.accept(8));
  EXPECT_TRUE(grammar.accept(7));
  EXPECT_TRUE(grammar.accept(think_end()));
  EXPECT_EQ(forced(grammar), 9);
  EXPECT_TRUE(grammar.accept(9));
  EXPECT_TRUE(grammar.is_terminated());
}

}  // namespace
}  // namespace ferry
