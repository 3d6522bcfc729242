#include "runtime/schedule/logit_filters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

namespace ferry {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// A sequence in the middle of its completion.
struct FilterCase {
  std::vector<TokenId> tokens;  // prompt and completion
  std::vector<TokenId> drafts;
  int64_t num_prompt = 0;
  std::vector<uint32_t> mask;
  std::vector<TokenId> stop_ids;
  SamplingParams params;

  RowHistory history() const { return {.tokens = tokens, .drafts = drafts, .num_prompt = num_prompt}; }
  std::vector<float> run(std::vector<float> row) const {
    TokenCounts counts;
    counts.catch_up(history());
    std::vector<float> kept;
    const FilterContext context{.history = history(),
                                .mask = mask,
                                .stop_ids = stop_ids,
                                .counts = has_penalties(params) ? counts.counts() : std::span<const TokenCount>()};
    filter_logits(row, params, context, kept);
    return row;
  }
  std::vector<TokenId> all_tokens() const {
    std::vector<TokenId> all = tokens;
    all.insert(all.end(), drafts.begin(), drafts.end());
    return all;
  }
};

/// The same, filter by filter, in double and over all ids.
std::vector<double> by_the_book(const FilterCase& c, const std::vector<float>& row) {
  std::vector<double> logits(row.begin(), row.end());
  const std::vector<TokenId> all = c.all_tokens();
  const std::vector<TokenId> completion(all.begin() + c.num_prompt, all.end());
  const SamplingParams& p = c.params;
  const auto holds = [](const std::vector<TokenId>& ids, std::size_t id) {
    return std::ranges::find(ids, static_cast<TokenId>(id)) != ids.end();
  };
  for (std::size_t id = 0; id < logits.size(); ++id) {
    double& x = logits[id];
    if (!c.mask.empty() && (c.mask[id / 32] >> id % 32 & 1) == 0) x = kNever;
    if (!p.allowed_token_ids.empty() && !holds(p.allowed_token_ids, id)) x = kNever;
    for (const std::vector<TokenId>& word : p.bad_words) {
      std::vector<TokenId> would_be = completion;
      would_be.push_back(static_cast<TokenId>(id));
      if (would_be.size() >= word.size() && std::equal(word.begin(), word.end(), would_be.end() - std::ssize(word))) x = kNever;
    }
    const bool is_stop = holds(p.stop_token_ids, id) || (!p.ignore_eos && holds(c.stop_ids, id));
    if (is_stop && std::ssize(completion) < p.min_tokens) x = kNever;
    for (const TokenBias& bias : p.logit_bias) x += bias.id == static_cast<TokenId>(id) ? bias.bias : 0.0;
    if (holds(all, id)) x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    const auto count = std::ranges::count(completion, static_cast<TokenId>(id));
    x -= static_cast<double>(p.frequency_penalty) * static_cast<double>(count);
    x -= count > 0 ? p.presence_penalty : 0.0;
  }
  return logits;
}

class RandomCases {
 public:
  explicit RandomCases(unsigned seed) : random_(seed) {}
  int up_to(int most) { return std::uniform_int_distribution<int>(0, most)(random_); }
  float between(float low, float high) { return std::uniform_real_distribution<float>(low, high)(random_); }
  std::vector<TokenId> ids(int count, int vocab) {
    std::vector<TokenId> ids(static_cast<std::size_t>(count));
    for (TokenId& id : ids) id = up_to(vocab - 1);
    return ids;
  }
  FilterCase next(int vocab) {
    FilterCase c;
    c.num_prompt = 1 + up_to(30);
    c.tokens = ids(static_cast<int>(c.num_prompt) + up_to(20), vocab);
    c.drafts = ids(up_to(3), vocab);
    if (up_to(2) == 0) {
      for (int word = 0; word < (vocab + 31) / 32; ++word)
        c.mask.push_back(up_to(1) == 0 ? ~0U : static_cast<uint32_t>(random_()));
    }
    c.stop_ids = ids(up_to(2), vocab);
    SamplingParams& p = c.params;
    p.ignore_eos = up_to(1) == 0;
    p.stop_token_ids = ids(up_to(2), vocab);
    if (up_to(1) == 0) p.min_tokens = up_to(30);
    if (up_to(2) == 0) p.allowed_token_ids = ids(1 + up_to(vocab), vocab);
    for (int i = up_to(4); i > 0; --i) p.bad_words.push_back(bad_word(c, vocab));
    std::set<TokenId> biased;
    for (const TokenId id : ids(up_to(5), vocab)) biased.insert(id);
    for (const TokenId id : biased) p.logit_bias.push_back({id, between(-100, 100)});
    if (up_to(1) == 0) p.repetition_penalty = between(0.2F, 3.0F);
    if (up_to(1) == 0) p.presence_penalty = between(-2.0F, 2.0F);
    if (up_to(1) == 0) p.frequency_penalty = between(-2.0F, 2.0F);
    return c;
  }

 private:
  /// Often one whose beginning the completion ends with.
  std::vector<TokenId> bad_word(const FilterCase& c, int vocab) {
    const std::vector<TokenId> all = c.all_tokens();
    std::vector<TokenId> word(all.end() - std::min<std::ptrdiff_t>(up_to(3), std::ssize(all)), all.end());
    if (up_to(3) == 0 && !word.empty()) word[0] = up_to(vocab - 1);
    word.push_back(up_to(vocab - 1));
    return word;
  }

  std::mt19937 random_;
};

TEST(LogitFilters, AgreeWithTheBook) {
  RandomCases random(11);
  int num_forbidden = 0, num_changed = 0;
  for (int i = 0; i < 3000; ++i) {
    const int vocab = 1 + random.up_to(90);
    const FilterCase c = random.next(vocab);
    std::vector<float> row(static_cast<std::size_t>(vocab));
    for (float& x : row) x = random.between(-20, 20);
    const std::vector<double> expected = by_the_book(c, row);
    const std::vector<float> filtered = c.run(row);
    for (std::size_t id = 0; id < row.size(); ++id) {
      ASSERT_EQ(filtered[id] == kNever, expected[id] == static_cast<double>(kNever)) << "case " << i << ", id " << id;
      num_forbidden += filtered[id] == kNever ? 1 : 0;
      num_changed += filtered[id] != row[id] ? 1 : 0;
      // A handful of float operations on numbers up to 100 + 20 * 3 and 2 * 50.
      if (filtered[id] != kNever) {
        ASSERT_NEAR(filtered[id], expected[id], 1e-4) << "case " << i << ", id " << id;
      }
    }
    if (!has_filters(c.params, c.history().num_generated()) && c.mask.empty()) {
      ASSERT_EQ(filtered, row);
    }
  }
  EXPECT_GT(num_forbidden, 10'000);
  EXPECT_GT(num_changed - num_forbidden, 10'000);
}

// transformers 5: RepetitionPenaltyLogitsProcessor (score / p if score > 0 else score * p), and vLLM's apply_penalties.
TEST(LogitFilters, PenaltiesAreThoseOfTheField) {
  FilterCase c{.tokens = {0, 1, 2, 2, 3, 3, 3}, .num_prompt = 3};
  c.params.repetition_penalty = 2.0F;
  EXPECT_EQ(c.run({1.0F, -1.0F, 0.0F, 3.0F, 5.0F}), (std::vector<float>{0.5F, -2.0F, 0.0F, 1.5F, 5.0F}));
  c.params.repetition_penalty = 1.0F;
  c.params.presence_penalty = 0.5F;
  EXPECT_EQ(c.run({1.0F, -1.0F, 0.0F, 3.0F, 5.0F}), (std::vector<float>{1.0F, -1.0F, -0.5F, 2.5F, 5.0F}));
  c.params.frequency_penalty = 0.25F;
  EXPECT_EQ(c.run({1.0F, -1.0F, 0.0F, 3.0F, 5.0F}), (std::vector<float>{1.0F, -1.0F, -0.75F, 1.75F, 5.0F}));
}

TEST(LogitFilters, BadWordsLookAtTheCompletionAndAtDrafts) {
  FilterCase c{.tokens = {5, 1, 2}, .drafts = {3}, .num_prompt = 1};
  const auto is_forbidden = [&](const std::vector<TokenId>& word) {
    c.params.bad_words = {word};
    return c.run(std::vector<float>(8, 1.0F))[static_cast<std::size_t>(word.back())] == kNever;
  };
  EXPECT_TRUE(is_forbidden({4}));
  EXPECT_TRUE(is_forbidden({3, 4}));
  EXPECT_TRUE(is_forbidden({1, 2, 3, 4}));
  EXPECT_FALSE(is_forbidden({2, 4}));
  EXPECT_FALSE(is_forbidden({5, 1, 2, 3, 4})) << "began in the prompt";
}

TEST(LogitFilters, StopIdsAreHeldBackUntilMinTokens) {
  FilterCase c{.tokens = {5, 1, 2}, .num_prompt = 1, .stop_ids = {0}};
  c.params.stop_token_ids = {1};
  c.params.min_tokens = 3;
  EXPECT_EQ(c.run({1, 1, 1}), (std::vector<float>{kNever, kNever, 1}));
  c.params.ignore_eos = true;
  EXPECT_EQ(c.run({1, 1, 1}), (std::vector<float>{1, kNever, 1}));
  c.drafts = {2};
  EXPECT_EQ(c.run({1, 1, 1}), (std::vector<float>{1, 1, 1}));
  EXPECT_FALSE(has_filters(c.params, 3));
  EXPECT_TRUE(has_filters(c.params, 2));
  c.params.stop_token_ids.clear();
  EXPECT_FALSE(has_filters(c.params, 2)) << "nothing could stop it";
}

TEST(TokenCounts, CountEachTokenOnce) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<TokenId> tokens;
    for (int k = 0; k < 60; ++k) tokens.push_back(static_cast<TokenId>(random() % 20));
    const int64_t num_prompt = 1 + static_cast<int64_t>(random() % 30);
    TokenCounts counts;
    for (int64_t size = num_prompt; size <= std::ssize(tokens); size += static_cast<int64_t>(random() % 4)) {
      // Right drafts are asked for one after another, and are tokens later.
      const std::span<const TokenId> known = std::span(tokens).first(static_cast<std::size_t>(size));
      const std::size_t num_drafts = std::min<std::size_t>(random() % 3, static_cast<std::size_t>(size - num_prompt));
      counts.catch_up(
          {.tokens = known.first(known.size() - num_drafts), .drafts = known.last(num_drafts), .num_prompt = num_prompt});
      std::map<TokenId, int32_t> expected;
      for (int64_t k = 0; k < size; ++k) expected[tokens[static_cast<std::size_t>(k)]] += k < num_prompt ? 0 : 1;
      ASSERT_EQ(counts.counts().size(), expected.size());
      auto at = expected.begin();
      for (const TokenCount& count : counts.counts()) {
        EXPECT_EQ(count.id, at->first);
        EXPECT_EQ(count.num_generated, at->second);
        ++at;
      }
    }
  }
}

}  // namespace
}  // namespace ferry
