#include "kernels/roof_probe.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/roof.h"
#include "runtime/base/aligned_buffer.h"
#include "tests/support/multiply_bound.h"

namespace ferry {
namespace {

TEST(RoofProbe, EveryPatternReadsEveryWordOfTheStream) {
  constexpr std::size_t kBytes = 4096;
  AlignedBuffer stream(kBytes);
  for (const ReadPattern pattern : kReadPatterns) {
    EXPECT_EQ(read_stream(stream.data(), kBytes, pattern), 0U);
    for (std::size_t word = 0; word < kBytes / sizeof(uint64_t); ++word) {
      stream.as<uint64_t>()[word] = word + 1;
      EXPECT_EQ(read_stream(stream.data(), kBytes, pattern), word + 1);
      stream.as<uint64_t>()[word] = 0;
    }
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

#ifdef __SANITIZE_ADDRESS__
constexpr bool kIsInstrumented = true;  // the probes then do more than multiply
#else
constexpr bool kIsInstrumented = false;
#endif

/// The units of all kernels that this processor has, and of none.
TEST(RoofProbe, NoUnitIsFasterThanItsInstructionsAllow) {
  std::vector<std::string> kernels = cpu_matmul_names();
  kernels.emplace_back("ref");
  for (const std::string& matmul : kernels) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
      const std::string unit = multiply_unit(dtype, matmul);
      const double per_cycle = most_operations_per_cycle(unit);
      ASSERT_GT(per_cycle, 0) << unit;
      const MultiplyRates rates = measure_multiply_rates(dtype, matmul, 25);
      EXPECT_LE(rates.probe_per_s, kRateTolerance * per_cycle * rates.cycles_per_s) << unit << ", operations a second";
      EXPECT_TRUE(is_possible(rates, unit)) << unit << " " << rates.probe_per_s << ", in assembly " << rates.assembly_per_s;
      if (kIsInstrumented) continue;
      EXPECT_GE(rates.probe_per_s, 0.5 * rates.assembly_per_s) << unit << " is far from what its instructions reach";
    }
  }
}

TEST(RoofProbe, AnImpossibleRateIsTold) {
  const double possible = most_operations_per_cycle("avx512_fma") * 3e9;
  EXPECT_TRUE(is_possible({.cycles_per_s = 3e9, .probe_per_s = possible, .assembly_per_s = possible}, "avx512_fma"));
  EXPECT_FALSE(is_possible({.cycles_per_s = 3e9, .probe_per_s = 1.5 * possible, .assembly_per_s = 2 * possible}, "avx512_fma"));
  EXPECT_FALSE(is_possible({.cycles_per_s = 3e9, .probe_per_s = possible, .assembly_per_s = 0.5 * possible}, "avx512_fma"));
}

TEST(RoofProbe, AChainOfAdditionsCountsWhatItDoes) {
  EXPECT_EQ(add_in_chain(16), 16);
  EXPECT_EQ(add_in_chain(1'000'000), 1'000'000);
}

/// Each way to read by itself is one pass, and the roof is the best of many: it may not lie below one of them by more than the
/// host's unrest.
TEST(Roof, TheReadRoofIsThatOfTheFastestWayToRead) {
  ThreadPool pool(2);
  RoofProbe roof(pool, std::size_t{4} << 20);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100'000}, std::size_t{4} << 20, std::size_t{1} << 30}) {
    bool is_best = false;  // unless a neighbour leaves between the two
    for (int i = 0; i < 20 && !is_best; ++i) {
      const double best = roof.read_bytes_per_s(bytes);
      ASSERT_GT(best, 0);
      is_best = true;
      for (const ReadSharing sharing : {ReadSharing::kParts, ReadSharing::kPieces}) {
        for (const ReadPattern pattern : kReadPatterns)
          is_best = is_best && roof.read_bytes_per_s(bytes, sharing, pattern) <= 2 * best;
      }
    }
    EXPECT_TRUE(is_best) << bytes;
  }
}

}  // namespace
}  // namespace ferry
