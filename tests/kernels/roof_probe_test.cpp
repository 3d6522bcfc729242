#include "kernels/roof_probe.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/matmul.h"
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

TEST(RoofProbe, TheUnitIsTheOneOfTheKernelsInUse) {
  for (const std::string& matmul : cpu_matmul_names()) {
    const std::string codes = multiply_unit(DType::kI8, matmul), bf16 = multiply_unit(DType::kBF16, matmul);
    EXPECT_EQ(codes, matmul == "amx" ? "amx_int8" : matmul.starts_with("avx512_") ? "avx512_vnni" : "avx2_maddubs");
    EXPECT_EQ(bf16, matmul == "amx"           ? "amx_bf16"
                    : matmul == "avx512_bf16" ? "avx512_bf16"
                    : matmul == "avx2"        ? "avx2_fma"
                                              : "avx512_fma");
    EXPECT_GT(multiply_in_registers(DType::kI8, 1, matmul), 0);
  }
  EXPECT_STREQ(multiply_unit(DType::kI8, "ref"), "scalar");
}

}  // namespace
}  // namespace ferry
