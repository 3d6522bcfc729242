#include "runtime/schedule/ngram_drafts.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

using Tokens = std::vector<TokenId>;

Tokens drafts_of(const Tokens& tokens, int64_t max_drafts) {
  Tokens drafts{7, 7, 7};  // of another sequence
  ngram_drafts(tokens, max_drafts, drafts);
  return drafts;
}

TEST(NgramDrafts, AreWhatFollowedTheLastTimeThatTheLongestSuffixStoodThere) {
  EXPECT_EQ(drafts_of({1, 2, 3, 9, 8, 7, 5, 1, 2, 3}, 3), (Tokens{9, 8, 7}));
  EXPECT_EQ(drafts_of({1, 2, 40, 1, 2, 41, 1, 2}, 1), (Tokens{41})) << "the last place";
  EXPECT_EQ(drafts_of({6, 1, 2, 40, 1, 2, 41, 6, 1, 2}, 1), (Tokens{40})) << "a longer suffix goes before a later place";
  EXPECT_EQ(drafts_of({0, 1, 2, 3, 4, 50, 9, 1, 2, 3, 4, 51, 0, 1, 2, 3, 4}, 1), (Tokens{51})) << "four tokens are enough";
}

TEST(NgramDrafts, GoOnWithThemselvesWhereTheTextEnds) {
  EXPECT_EQ(drafts_of({5, 5, 5}, 4), (Tokens{5, 5, 5, 5}));
  EXPECT_EQ(drafts_of({1, 2, 3, 1, 2, 3, 1, 2}, 5), (Tokens{3, 1, 2, 3, 1}));
}

TEST(NgramDrafts, AreNoneWhereNothingRepeats) {
  for (const Tokens& tokens : {Tokens{}, {1}, {1, 2}, {1, 1}, {1, 2, 3, 4, 5}, {1, 2, 3, 1}})
    EXPECT_EQ(drafts_of(tokens, 4), Tokens{});
  EXPECT_EQ(drafts_of({5, 5, 5}, 0), Tokens{});
}

}  // namespace
}  // namespace ferry
