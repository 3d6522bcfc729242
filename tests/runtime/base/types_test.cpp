#include "runtime/base/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ferry {
namespace {

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0F).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(1.0F + 0x1p-8F).bits, 0x3f80);             // a tie goes to the even neighbour
  EXPECT_EQ(to_bfloat16(1.0F + 0x1p-8F + 0x1p-20F).bits, 0x3f81);  // just above the tie
  EXPECT_EQ(to_bfloat16(1.0F + 3 * 0x1p-8F).bits, 0x3f82);         // a tie the other way
  EXPECT_EQ(to_bfloat16(-0.0F).bits, 0x8000);
}

TEST(Bfloat16, KeepsSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(round_to<bfloat16>(inf), inf);
  EXPECT_EQ(round_to<bfloat16>(-inf), -inf);
  EXPECT_EQ(round_to<bfloat16>(std::numeric_limits<float>::max()), inf);
  EXPECT_TRUE(std::isnan(round_to<bfloat16>(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(round_to<bfloat16>(std::bit_cast<float>(0x7f800001U))));  // its payload is below bf16's bits
}

TEST(Bfloat16, EveryValueSurvivesTheTripThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bfloat16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(x))) continue;
    ASSERT_EQ(to_bfloat16(to_float(x)).bits, bits);
  }
}

}  // namespace
}  // namespace ferry
