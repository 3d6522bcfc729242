#include "runtime/base/patience.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(Patience, IsUsualUnlessTheEnvironmentSaysHowMany) {
  EXPECT_EQ(parse_patience(nullptr), 1);
  EXPECT_EQ(parse_patience("1"), 1);
  EXPECT_EQ(parse_patience("20"), 20);
  EXPECT_EQ(parse_patience("100"), 100);
}

TEST(Patience, IsNothingElse) {
  for (const char* text : {"", "0", "101", "-1", "2x", " 3", "99999999999999999999"})
    EXPECT_FALSE(parse_patience(text)) << text;
}

TEST(Patience, LengthensTimes) {
  EXPECT_EQ(patient(std::chrono::seconds(2)), std::chrono::seconds(2));
  set_patience(20);
  EXPECT_EQ(patient(std::chrono::seconds(2)), std::chrono::seconds(40));
  set_patience(1);
}

}  // namespace
}  // namespace ferry
