#include "runtime/base/quoting.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace ferry {
namespace {

TEST(Quoting, CharactersThatNobodySeesOrThatTurnTextAreWrittenAsTheirNumbers) {
  const std::pair<const char*, const char*> unseen[] = {
      {"\u00ad", "\\u00ad"}, {"\u061c", "\\u061c"}, {"\u200b", "\\u200b"}, {"\u200d", "\\u200d"},     {"\u200f", "\\u200f"},
      {"\u2028", "\\u2028"}, {"\u202a", "\\u202a"}, {"\u202e", "\\u202e"}, {"\u2060", "\\u2060"},     {"\u2066", "\\u2066"},
      {"\u2069", "\\u2069"}, {"\ufeff", "\\ufeff"}, {"\ufff9", "\\ufff9"}, {"\xc2\x85", "\\x85"},     {"\xc2\x9b", "\\x9b"},
      {"\x7f", "\\x7f"},     {"\x1b", "\\x1b"},     {"\n", "\\x0a"},       {"\U000e0041", "\\ue0041"}};
  for (const auto& [character, shown] : unseen) {
    const std::string text = "a" + std::string(character) + "b", line = "a" + std::string(shown) + "b";
    EXPECT_EQ(printable(text), line);
    EXPECT_EQ(in_quotes(text), "'" + line + "'");
  }
  EXPECT_EQ(printable_lines("a\n\u202eb\n"), "a\n\\u202eb\n");
}

TEST(Quoting, WhatIsSeenStaysAsItIs) {
  const std::string seen = "\u00a0\u00e4\u0628\u2010\u2030\u205f\u2070\ufefe\U0001f6a2";
  EXPECT_EQ(printable(seen), seen);
  for (const char* cut : {"\xe2", "\xe2\x80", "\xe2\x80\x41", "\xf3\xa0", "\xff", "\x85"}) EXPECT_EQ(printable(cut), cut);
}

}  // namespace
}  // namespace ferry
