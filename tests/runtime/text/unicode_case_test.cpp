#include "runtime/text/unicode_case.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(UnicodeCase, IsPythons) {
  EXPECT_EQ(to_upper("Stra\u00dfe na\u00efve \ufb01x \u0149 \u0450"), "STRASSE NA\u00cfVE FIX \u02bcN \u0400");
  EXPECT_EQ(to_lower("\u0130 \u00c9 ABC"), "i\u0307 \u00e9 abc");
  EXPECT_EQ(to_title("they're \u01c6x \ufb01n 3a"), "They'Re \u01c5x Fin 3A");
  EXPECT_EQ(to_capitalized("\u00e9A \u00dfX"), "\u00c9a \u00dfx");
  EXPECT_EQ(to_capitalized("\u00dfX"), "Ssx");
  EXPECT_EQ(to_upper(""), "");
}

TEST(UnicodeCase, ASigmaThatEndsAWordIsAnother) {
  EXPECT_EQ(to_lower("\u039f\u0394\u039f\u03a3"), "\u03bf\u03b4\u03bf\u03c2");
  EXPECT_EQ(to_lower("\u03a3\u0391 \u03a3"), "\u03c3\u03b1 \u03c3");
  EXPECT_EQ(to_lower("\u0391\u03a3.\u0391"), "\u03b1\u03c3.\u03b1");
  EXPECT_EQ(to_lower("\u0391\u03a3. "), "\u03b1\u03c2. ");
}

TEST(UnicodeCase, TellsCharactersApart) {
  EXPECT_TRUE(is_lower(U'\u00e9') && is_lower(U'\u00df') && !is_lower(U'1') && !is_lower(U'\u01c5'));
  EXPECT_TRUE(is_upper(U'\u00c9') && !is_upper(U'\u01c5') && is_cased(U'\u01c5') && !is_cased(U'\u4e2d'));
  EXPECT_TRUE(is_letter(U'\u4e2d') && !is_letter(U'1') && is_decimal(U'\u0663') && !is_decimal(U'\u00bd'));
  EXPECT_TRUE(is_numeric(U'\u00bd') && is_printable(U' ') && !is_printable(U'\u00a0') && !is_printable(U'\u200b'));
}

TEST(UnicodeCase, MalformedBytesAreReplaced) {
  std::string_view text = "\xC3";
  EXPECT_EQ(take_character(text), U'\uFFFD');
  EXPECT_TRUE(text.empty());
  std::string out;
  append_character(0xD800, out);
  EXPECT_EQ(out, "\uFFFD");
}

}  // namespace
}  // namespace ferry
