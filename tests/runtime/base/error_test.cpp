#include "runtime/base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace ferry {
namespace {

TEST(OneLine, LeavesAnOrdinaryLineAlone) {
  EXPECT_EQ(one_line(""), "");
  EXPECT_EQ(one_line("layer 3: 'ä‥漢' is 7"), "layer 3: 'ä‥漢' is 7");
  EXPECT_EQ(one_line(std::string(1000, 'x')), std::string(1000, 'x'));
}

TEST(OneLine, ReplacesControlCharacters) {
  EXPECT_EQ(one_line(std::string_view("a\nb\r\t\0c\x1b[31m\x7f", 12)), "a\\x0ab\\x0d\\x09\\x00c\\x1b[31m");
  EXPECT_EQ(one_line("\x7f"), "\\x7f");
  EXPECT_EQ(one_line("a\xc2\x9b[1m\xc2\xa0"), "a\\x9b[1m\xc2\xa0");
  EXPECT_EQ(one_line("rank \u202e3"), "rank \\u202e3");
  EXPECT_LE(one_line(std::string(1000, '\n')).size(), 1002U);
}

TEST(OneLine, CutsAtAWholeCharacter) {
  EXPECT_EQ(one_line(std::string(1001, 'x')), std::string(999, 'x') + "...");
  for (std::size_t offset = 0; offset < 4; ++offset) {
    std::string text(offset, 'x');
    while (text.size() < 2000) text += "€";  // three bytes
    const std::string line = one_line(text);
    EXPECT_LE(line.size(), 1002U);
    EXPECT_GE(line.size(), 997U);
    ASSERT_TRUE(line.ends_with("€...")) << offset;
  }
  EXPECT_EQ(one_line(std::string(5000, '\x80')), "...");  // nothing but the middles of characters
}

TEST(Error, IsOneLineWhateverItIsMadeOf) {
  const std::string message = Error(ErrorCode::kNotFound, "role 'a\nb" + std::string(1 << 20, 'y')).what();
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0);
  EXPECT_LT(message.size(), 1100U);
  EXPECT_TRUE(message.starts_with("role 'a\\x0aby"));
}

}  // namespace
}  // namespace ferry
