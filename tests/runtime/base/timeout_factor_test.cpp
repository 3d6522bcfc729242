#include "runtime/base/timeout_factor.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(TimeoutFactor, IsOneByDefault) {
  EXPECT_EQ(parse_timeout_factor(nullptr), 1);
  EXPECT_EQ(parse_timeout_factor("1"), 1);
  EXPECT_EQ(parse_timeout_factor("20"), 20);
  EXPECT_EQ(parse_timeout_factor("100"), 100);
}

TEST(TimeoutFactor, RefusesOtherText) {
  for (const char* text : {"", "0", "101", "-1", "2x", " 3", "99999999999999999999"})
    EXPECT_FALSE(parse_timeout_factor(text)) << text;
}

TEST(TimeoutFactor, LengthensTimeouts) {
  EXPECT_EQ(scaled_timeout(std::chrono::seconds(2)), std::chrono::seconds(2));
  set_timeout_factor(20);
  EXPECT_EQ(scaled_timeout(std::chrono::seconds(2)), std::chrono::seconds(40));
  set_timeout_factor(1);
}

}  // namespace
}  // namespace ferry
