#include "launch/bench_prompts.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/base/error.h"
#include "runtime/options/engine_options.h"
#include "runtime/text/tokenizer.h"

namespace ferry {
namespace {

using Prompts = std::vector<std::vector<TokenId>>;

Tokenizer demo_tokenizer() { return Tokenizer::load(checkpoint_named("demo")); }

void expect_different(const Prompts& prompts, std::size_t num_prompts) {
  EXPECT_EQ(prompts.size(), num_prompts);
  EXPECT_EQ(std::set(prompts.begin(), prompts.end()).size(), num_prompts);
}

TEST(BenchPrompts, AreAllDifferent) {
  const Tokenizer tokenizer = demo_tokenizer();
  expect_different(opening_prompts(tokenizer, 64, 32), 64);
  expect_different(opening_prompts(tokenizer, 300, 32), 300);
  expect_different(numbered_prompts(6000, 300, 32), 300);
}

TEST(BenchPrompts, HaveNoMoreTokensThanAllowed) {
  for (const auto& prompt : opening_prompts(demo_tokenizer(), 200, 5)) {
    EXPECT_GE(prompt.size(), 1U);
    EXPECT_LE(prompt.size(), 5U);
  }
}

TEST(BenchPrompts, ArePiecesOfAText) {
  const Tokenizer tokenizer = demo_tokenizer();
  std::string text;
  for (int i = 0; i < 40; ++i) text += "The river " + std::to_string(i) + " flows to the sea. ";
  const std::vector<TokenId> tokens = tokenizer.encode_prompt(text);
  const Prompts prompts = text_prompts(tokenizer, text, 7, 16);
  expect_different(prompts, 7);
  EXPECT_TRUE(std::equal(prompts.front().begin(), prompts.front().end(), tokens.begin()));
  EXPECT_TRUE(std::equal(prompts.back().rbegin(), prompts.back().rend(), tokens.rbegin())) << "as far apart as the text allows";
  for (const auto& prompt : prompts) EXPECT_EQ(prompt.size(), 16U);
  EXPECT_EQ(text_prompts(tokenizer, text, 1, 16).size(), 1U);
}

TEST(BenchPrompts, ATextThatIsTooShortIsRefused) {
  try {
    text_prompts(demo_tokenizer(), "The river flows.", 64, 16);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("at least 79"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ferry
