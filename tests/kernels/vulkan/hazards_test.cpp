#include "kernels/vulkan/hazards.h"

#include <gtest/gtest.h>

namespace ferry::vulkan {
namespace {

Access reading(Range range) { return {.reads = {range}, .writes = {}}; }
Access writing(Range range) { return {.reads = {}, .writes = {range}}; }

TEST(Hazards, WritesKeepWhatMeetsThemApart) {
  Hazards hazards;
  hazards.add({.reads = {{100, 200}}, .writes = {{300, 400}}});
  EXPECT_TRUE(hazards.meets(reading({399, 500})));
  EXPECT_TRUE(hazards.meets(writing({200, 301})));
  EXPECT_TRUE(hazards.meets(writing({150, 160})));
  EXPECT_TRUE(hazards.meets(writing({0, 1000})));
  EXPECT_FALSE(hazards.meets(reading({100, 200}))) << "two readers do not disturb each other";
  EXPECT_FALSE(hazards.meets(reading({400, 500})));
  EXPECT_FALSE(hazards.meets(writing({200, 300})));
  EXPECT_FALSE(hazards.meets({})) << "nothing is touched";
}

TEST(Hazards, ABarrierForgets) {
  Hazards hazards;
  hazards.add(writing({0, 10}));
  hazards.clear();
  EXPECT_FALSE(hazards.meets(reading({0, 10})));
}

TEST(Hazards, AnEmptyRangeMeetsNothing) {
  Hazards hazards;
  hazards.add(writing({0, 100}));
  EXPECT_FALSE(hazards.meets(reading({50, 50})));
}

TEST(Range, OfRowsEndsWithTheLastElement) {
  std::vector<float> memory(40);
  const ConstMatrixView rows{reinterpret_cast<const std::byte*>(memory.data()), DType::kF32, 3, 4, 10};
  const Range range = Range::of(rows);
  EXPECT_EQ(range.begin, reinterpret_cast<uint64_t>(memory.data()));
  EXPECT_EQ(range.end - range.begin, 24u * 4);
  EXPECT_TRUE(Range::of(rows.rows_from(0, 0)).is_empty());
  EXPECT_FALSE(Range::of(rows.rows_from(0, 1)).meets(Range::of(rows.rows_from(1, 2))));
}

}  // namespace
}  // namespace ferry::vulkan
