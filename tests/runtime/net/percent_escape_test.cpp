#include "runtime/net/percent_escape.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(PercentEscape, IsTwoHexadecimalDigits) {
  EXPECT_EQ(percent_escape("%2Frest"), '/');
  EXPECT_EQ(percent_escape("%2f"), '/');
  EXPECT_EQ(percent_escape("%00"), '\0');
  EXPECT_EQ(percent_escape("%fF"), '\xff');
  for (const char* text : {"", "%", "%2", "%2g", "%g2", "%-1", "%+1", "% 1", "a%2F"})
    EXPECT_EQ(percent_escape(text), std::nullopt) << text;
}

TEST(PercentEscape, OthersStayAsTheyAre) {
  EXPECT_EQ(percent_decoded("org%2Fname%3a1"), "org/name:1");
  EXPECT_EQ(percent_decoded("%252F"), "%2F");  // decoded once
  EXPECT_EQ(percent_decoded("100%"), "100%");
  EXPECT_EQ(percent_decoded("%zz+%4"), "%zz+%4");
  EXPECT_EQ(percent_decoded(""), "");
}

}  // namespace
}  // namespace ferry
