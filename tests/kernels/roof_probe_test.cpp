#include "kernels/roof_probe.h"

#include <gtest/gtest.h>

#include <string>

#include "runtime/base/aligned_buffer.h"

namespace ferry {
namespace {

TEST(RoofProbe, ReadsEveryWordOfTheStream) {
  constexpr std::size_t kBytes = 16384;
  AlignedBuffer stream(kBytes);
  EXPECT_EQ(read_stream(stream.data(), kBytes), 0U);
  for (std::size_t word = 0; word < kBytes / sizeof(uint64_t); ++word) {
    stream.as<uint64_t>()[word] = word + 1;
    EXPECT_EQ(read_stream(stream.data(), kBytes), word + 1);
    stream.as<uint64_t>()[word] = 0;
  }
}

TEST(RoofProbe, OperationsGrowWithTheRounds) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    EXPECT_GT(multiply_in_registers(dtype, 1), 0);
    EXPECT_EQ(multiply_in_registers(dtype, 1000), 1000 * multiply_in_registers(dtype, 1));
    EXPECT_NE(std::string(multiply_unit(dtype)), "");
  }
}

}  // namespace
}  // namespace ferry
