#include "runtime/plan/curve.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(Curve, GoesStraightBetweenItsPoints) {
  const Curve curve{{{10, 1}, {20, 3}, {40, 4}}};
  EXPECT_DOUBLE_EQ(curve.at(1), 1);  // level before the first
  EXPECT_DOUBLE_EQ(curve.at(10), 1);
  EXPECT_DOUBLE_EQ(curve.at(15), 2);
  EXPECT_DOUBLE_EQ(curve.at(30), 3.5);
  EXPECT_DOUBLE_EQ(curve.at(80), 6);  // the last line goes on
  EXPECT_DOUBLE_EQ(curve.times(2).at(30), 7);
}

TEST(Curve, DoesNotFallBeyondItsLastPoint) {
  const Curve curve{{{10, 3}, {20, 2}}};
  EXPECT_DOUBLE_EQ(curve.at(15), 2.5);
  EXPECT_DOUBLE_EQ(curve.at(1e6), 2);
}

TEST(Curve, OfNoPointsIsZeroAndOfOneLevel) {
  EXPECT_DOUBLE_EQ(Curve{}.at(7), 0);
  EXPECT_DOUBLE_EQ((Curve{{{10, 3}}}).at(7000), 3);
}

}  // namespace
}  // namespace ferry
