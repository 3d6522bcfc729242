#include "runtime/text/unicode_text.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

// Expected values follow the Unicode standard, section 3.9, table 3-8 and its neighbours: one U+FFFD per maximal subpart.
TEST(UnicodeText, RepairsEachMaximalSubpart) {
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(repair_utf8("plain"), "plain");
  EXPECT_EQ(repair_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repair_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repair_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(repair_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(repair_utf8("x\xF0\x9F\x98"), "x" + r);
  EXPECT_EQ(repair_utf8(std::string_view("\0\x7F", 2)), std::string("\0\x7F", 2));
}

TEST(UnicodeText, KeepsBackOnlyWhatMayStillBecomeACharacter) {
  const std::string smile = "\xF0\x9F\x98\x80";
  for (size_t num_bytes = 1; num_bytes < smile.size(); ++num_bytes) {
    std::string out;
    EXPECT_EQ(append_utf8_lossy("ab" + smile.substr(0, num_bytes), CutCharacter::kKeepBack, out), 2U);
    EXPECT_EQ(out, "ab");
  }
  std::string out;
  EXPECT_EQ(append_utf8_lossy("\xED\xA0", CutCharacter::kKeepBack, out), 2U) << "a surrogate never becomes a character";
  EXPECT_EQ(out, std::string(kReplacementCharacter) + std::string(kReplacementCharacter));
}

TEST(UnicodeText, KnowsWellFormedText) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("\xF4\x8F\xBF\xBF"));
  EXPECT_FALSE(is_utf8("\xF4\x90\x80\x80"));
  EXPECT_FALSE(is_utf8("a\xE4\xBD"));
}

TEST(UnicodeText, Composes) {
  EXPECT_EQ(to_nfc("cafe\xCC\x81"), "caf\xC3\xA9");
  EXPECT_EQ(to_nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C");
  EXPECT_EQ(to_nfc("\xE2\x84\xAB"), "\xC3\x85") << "the Angstrom sign is a singleton";
  EXPECT_EQ(to_nfc("\xE0\xA4\x95\xE0\xA4\xBC"), "\xE0\xA4\x95\xE0\xA4\xBC") << "composition exclusion";
  EXPECT_EQ(to_nfc("a\xCC\x81\xCC\xA3"), "\xE1\xBA\xA1\xCC\x81") << "marks are ordered by class first";
  EXPECT_EQ(to_nfc("n\xE0\xB0\xBC\xCC\x83"), "n\xE0\xB0\xBC\xCC\x83") << "U+0C3C is newer than the tables in force";
}

TEST(UnicodeText, ComposesALongRunOfMarks) {
  constexpr size_t kNumPairs = 50'001;
  std::string text = "q";
  std::string expected_below;
  std::string expected_above;
  for (size_t i = 0; i < kNumPairs; ++i) {
    text += "\xCC\x80\xCC\xA3";  // classes 230 and 220
    expected_below += "\xCC\xA3";
    expected_above += "\xCC\x80";
  }
  EXPECT_EQ(to_nfc(text), "q" + expected_below + expected_above);
}

TEST(UnicodeText, StripsWhatPythonStrips) {
  EXPECT_EQ(strip_white_space("\t\n x y \r\n"), "x y");
  EXPECT_EQ(strip_white_space("\xE3\x80\x80\xC2\xA0\x1C x\xE2\x80\x83\xC2\x85"), "x");
  EXPECT_EQ(strip_white_space("\xE2\x80\x8Bx\xEF\xBB\xBF"), "\xE2\x80\x8Bx\xEF\xBB\xBF") << "zero width is not white space";
  EXPECT_EQ(strip_white_space(" \n "), "");
  EXPECT_EQ(strip_white_space(""), "");
  EXPECT_EQ(strip_white_space(" \x80\xE3\x80 "), "\x80\xE3\x80") << "malformed bytes stay";
}

}  // namespace
}  // namespace ferry
