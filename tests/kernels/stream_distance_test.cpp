#include "kernels/cpu/stream_distance.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(StreamDistance, IsNearForFourBitsOnTheProcessorsThatWereMeasuredSo) {
  const ProcessorKind zen4{.is_amd = true, .family = 25}, zen5{.is_amd = true, .family = 26};
  const ProcessorKind sapphire_rapids{.is_amd = false, .family = 6}, unknown{.is_amd = false, .family = 25};
  const WeightType int4{.format = WeightFormat::kInt4, .group_size = 32};
  EXPECT_EQ(stream_distance(int4, zen4), 512);
  for (const ProcessorKind& other : {zen5, sapphire_rapids, unknown, ProcessorKind{}})
    EXPECT_EQ(stream_distance(int4, other), 4096) << other.family;
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kInt8, WeightFormat::kE4M3})
    EXPECT_EQ(stream_distance({.format = format}, zen4), 4096);
}

TEST(StreamDistance, KnowsTheProcessor) { EXPECT_GT(this_processor().family, 0); }

}  // namespace
}  // namespace ferry
