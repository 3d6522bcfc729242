#include "profiler/report/findings/change_text.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

constexpr ChangeWords kWords{.up = "more", .down = "less", .times = "many"};

TEST(ChangeTextTest, SmallChangesArePercentages) {
  EXPECT_EQ(change_text(0.25, 0, kWords), "25 % more");
  EXPECT_EQ(change_text(-0.042, 1, kWords), "4.2 % less");
  EXPECT_EQ(change_text(0, 0, kWords), "0 % more");
  EXPECT_EQ(change_text(0.25, 0, kWords, 0.05), "25 % more ± 5");
}

TEST(ChangeTextTest, FromTwiceAsMuchMoreOnTheyAreFactors) {
  EXPECT_EQ(change_text(1.99, 0, kWords), "199 % more");
  EXPECT_EQ(change_text(1.996, 0, kWords), "3.0 × as many") << "it would be written as 200 %";
  EXPECT_EQ(change_text(2, 0, kWords), "3.0 × as many");
  EXPECT_EQ(change_text(25.39, 0, kWords), "26 × as many");
  EXPECT_EQ(change_text(8.96, 0, kWords), "10 × as many") << "not 10.0";
}

TEST(ChangeTextTest, AFactorsErrorIsAFactorToo) {
  EXPECT_EQ(change_text(25.39, 0, kWords, 2.11), "26 × as many ± 2");
  EXPECT_EQ(change_text(2.4, 0, kWords, 0.12), "3.4 × as many ± 0.1");
}

}  // namespace
}  // namespace ferry
