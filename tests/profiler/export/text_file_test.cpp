#include "profiler/export/text_file.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/profiler/export/ascend_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/no_file_room.h"

namespace ferry {
namespace {

template <class Write>
std::string written(Write&& write) {
  const test::TempFolder folder;
  TextFile out(folder.path() / "text");
  write(out);
  out.close();
  return test::read_text(folder.path() / "text");
}

TEST(TextFile, ScaledNumbersKeepEveryDigit) {
  const auto scaled = [](int64_t number, int decimals) {
    return written([&](TextFile& out) { out.scaled(number, decimals); });
  };
  EXPECT_EQ(scaled(0, 3), "0.000");
  EXPECT_EQ(scaled(7, 3), "0.007");
  EXPECT_EQ(scaled(999, 3), "0.999");
  EXPECT_EQ(scaled(1000, 3), "1.000");
  EXPECT_EQ(scaled(12'345'678'901'234'567, 3), "12345678901234.567");
  EXPECT_EQ(scaled(1'234'567, 6), "1.234567");
  EXPECT_EQ(scaled(-1'500, 3), "-1.500");
  EXPECT_EQ(scaled(std::numeric_limits<int64_t>::min(), 6), "-9223372036854.775808");
}

TEST(TextFile, RoundedNumbersHaveTheirDecimals) {
  EXPECT_EQ(written([](TextFile& out) { out.rounded(2.0 / 3, 4) << " " << 42; }), "0.6667 42");
  EXPECT_EQ(written([](TextFile& out) { out.rounded(1e300, 0); }).size(), 301U);
}

TEST(TextFile, KeepsWhatIsLargerThanItsBuffer) {
  const std::string text = written([](TextFile& out) {
    for (int i = 0; i < 300'000; ++i) out << "abcdefg";
  });
  EXPECT_EQ(text.size(), 2'100'000U);
  EXPECT_EQ(text.substr(1'050'000 / 7 * 7, 7), "abcdefg");
}

TEST(TextFile, QuotedTextHasNoBracesAndIsAscii) {
  EXPECT_EQ(quoted_json("a\"b\\\n"), R"("a\"b\\\n")");
  EXPECT_EQ(quoted_json("{x}"), "\"(x)\"");
  EXPECT_EQ(quoted_json("\xc3\xa9\xff").substr(0, 7), "\"\\u00e9");
}

TEST(TextFile, SaysWhyItCannotBeWritten) {
  const test::TempFolder folder;
  test::expect_error([&] { TextFile(folder.path() / "missing" / "text"); }, ErrorCode::kUnavailable,
                     {"cannot write ", "missing/text", "No such file"});
  const test::NoFileRoom no_room;
  const auto fill = [&] {
    TextFile out(folder.path() / "text");
    out << "x";
    out.close();
  };
  test::expect_error(fill, ErrorCode::kUnavailable, {"text' cannot be written", "File too large"});
}

}  // namespace
}  // namespace ferry
