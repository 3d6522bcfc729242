#include "runtime/text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace ferry {
namespace {

using Pieces = std::vector<std::string_view>;

Pieces split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Pieces pieces;
  pre_tokenizer.split(text, [&](std::string_view piece) { pieces.push_back(piece); });
  return pieces;
}

// The regex of Qwen3.5's tokenizer.json.
constexpr const char* kQwenRegex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

TEST(PreTokenizer, SplitsAsQwen) {
  const PreTokenizer pre_tokenizer(kQwenRegex);
  EXPECT_EQ(split(pre_tokenizer, "don't WE'LL 12"), (Pieces{"don", "'t", " WE", "'LL", " ", "1", "2"}));
  EXPECT_EQ(split(pre_tokenizer, "a  b \n c!?\n\n d"), (Pieces{"a", " ", " b", " \n", " c", "!?\n\n", " d"}));
  EXPECT_EQ(split(pre_tokenizer, "(foo) $x"), (Pieces{"(foo", ")", " $", "x"}));
  EXPECT_EQ(split(pre_tokenizer, "   "), (Pieces{"   "}));
  EXPECT_EQ(split(pre_tokenizer, ""), Pieces{});
}

TEST(PreTokenizer, FollowsOnigurumaWhereThePropertiesDiffer) {
  const PreTokenizer pre_tokenizer(kQwenRegex);
  // U+180E is no white space: it is taken with the letter after it.
  EXPECT_EQ(split(pre_tokenizer,
                  "\xE1\xA0\x8E"
                  "a"),
            (Pieces{"\xE1\xA0\x8E"
                    "a"}));
  // U+31350, a letter since Unicode 15, and U+10D40, a digit since Unicode 16.
  EXPECT_EQ(split(pre_tokenizer, "a\xF0\xB1\x8D\x90\xF0\x90\xB5\x80"), (Pieces{"a\xF0\xB1\x8D\x90", "\xF0\x90\xB5\x80"}));
  // Case folding joins the long s to s.
  EXPECT_EQ(split(pre_tokenizer, "a'\xC5\xBF"), (Pieces{"a", "'\xC5\xBF"}));
}

TEST(PreTokenizer, KeepsWhatNothingMatches) {
  const PreTokenizer pre_tokenizer(R"(\p{N}+)");
  EXPECT_EQ(split(pre_tokenizer, "ab12cd"), (Pieces{"ab", "12", "cd"}));
  EXPECT_EQ(split(pre_tokenizer, "abc"), (Pieces{"abc"}));
  const PreTokenizer matches_nothing("x*");
  EXPECT_EQ(split(matches_nothing, "\xC3\xA9xx\xC3\xA9"), (Pieces{"\xC3\xA9", "xx", "\xC3\xA9"}));
}

TEST(PreTokenizer, LosesNothingOfLongText) {
  const PreTokenizer pre_tokenizer(kQwenRegex);
  for (const std::string& unit :
       {std::string("a"), std::string(" "), std::string("\n "), std::string("!"), std::string("\xCC\x81")}) {
    std::string text;
    while (text.size() < 300'007) text += unit;
    size_t num_bytes = 0;
    for (const std::string_view piece : split(pre_tokenizer, text)) {
      EXPECT_EQ(piece.data(), text.data() + num_bytes);
      num_bytes += piece.size();
    }
    EXPECT_EQ(num_bytes, text.size());
  }
}

TEST(PreTokenizer, ReportsARegexThatNeverEnds) {
  const PreTokenizer pre_tokenizer("(a+)+[bc]");
  try {
    split(pre_tokenizer, std::string(64, 'a'));
    FAIL() << "exponential backtracking must end in an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find("regex '(a+)+[bc]' takes more than"), std::string::npos) << error.what();
  }
}

/// With characters behind it that PCRE2 looks for before it tries to match.
const std::string kLongLine = std::string(200'000, 'a') + "\nx1y";

/// No match alone takes long here, but there is one at each place of the text, or none.
TEST(PreTokenizer, BoundsTheWorkOfAllMatchesTogether) {
  for (const char* pattern : {".*.*x", R"(\p{L}*1)", R"(\p{L}(?=\p{L}*1)|.)", "a[^x]*+y|."}) {
    const PreTokenizer pre_tokenizer(pattern);
    int num_check_ins = 0;
    try {
      pre_tokenizer.split(
          kLongLine, [](std::string_view) {}, [&] { ++num_check_ins; });
      FAIL() << pattern << " must end in an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
      const std::string message = error.what();
      EXPECT_NE(message.find("regex '" + std::string(pattern) + "' takes more than "), std::string::npos) << message;
      EXPECT_NE(message.find("; allowed: 16777216 and 64 for each byte"), std::string::npos) << message;
    }
    EXPECT_GT(num_check_ins, 100) << pattern;
  }
}

TEST(PreTokenizer, StopsWhereItIsTold) {
  struct Stop {};
  const PreTokenizer pre_tokenizer(".*.*x");
  const auto stop = [] { throw Stop(); };
  EXPECT_THROW(pre_tokenizer.split(
                   kLongLine, [](std::string_view) {}, stop),
               Stop);
}

/// A match is first tried in the next 256 bytes: pieces around that length, and what is looked for behind them, are the same.
TEST(PreTokenizer, CutsLongPiecesAsShortOnes) {
  const PreTokenizer pre_tokenizer(kQwenRegex);
  for (const std::string letter : {"a", "\xC3\xA9", "\xE6\xB0\xB4"}) {
    for (std::size_t num_letters = 80; num_letters < 260; ++num_letters) {
      std::string word;
      while (word.size() < num_letters * letter.size()) word += letter;
      const std::string blanks(num_letters, ' ');
      EXPECT_EQ(split(pre_tokenizer, word + " " + word + blanks + " x"), (Pieces{word, " " + word, blanks, " x"}));
    }
  }
}

TEST(PreTokenizer, RefusesWhatTheEnginesUnderstandDifferently) {
  for (const char* pattern :
       {R"(\w+)", R"(\bx)", R"(^a)", R"(a$)", R"((?<=a)b)", R"((?<n>a))", R"((?m:.))", R"([a[bc]])", R"([a-z&&[^b]])",
        R"([^\S])", R"([\P{L}])", R"(a{2}+)", R"(a{2}?)", R"(a{,2})", R"(\h)", R"(\pL)", R"(\p{^L})", R"([]a])", "a\\"}) {
    EXPECT_THROW(oniguruma_to_pcre2(pattern), Error) << pattern;
  }
  EXPECT_THROW(PreTokenizer("(a"), Error);
  EXPECT_THROW(PreTokenizer("\xFF"), Error);
  EXPECT_EQ(oniguruma_to_pcre2(R"((?i:'s)|\p{Lu}{1,3}[\r\n]*+(?!\.)\d)"), R"((?i:'s)|\p{Lu}{1,3}[\r\n]*+(?!\.)\p{Nd})");
}

}  // namespace
}  // namespace ferry
