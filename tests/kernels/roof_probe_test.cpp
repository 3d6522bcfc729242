#include "kernels/roof_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/roof.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/sanitizers.h"
#include "tests/support/memory_loop.h"
#include "tests/support/multiply_bound.h"

namespace ferry {
namespace {

TEST(RoofProbe, EveryPatternReadsEveryWordOfTheStream) {
  constexpr std::size_t kBytes = 4096;
  AlignedBuffer stream(kBytes);
  for (const StreamPattern pattern : kStreamPatterns) {
    for (const StreamAccess access : {StreamAccess::kRead, StreamAccess::kRewrite}) {
      EXPECT_EQ(walk_stream(stream.data(), kBytes, pattern, access), 0U);
      for (std::size_t word = 0; word < kBytes / sizeof(uint64_t); ++word) {
        stream.as<uint64_t>()[word] = word + 1;
        EXPECT_EQ(walk_stream(stream.data(), kBytes, pattern, access), word + 1);
        EXPECT_EQ(stream.as<uint64_t>()[word], word + 1);
        stream.as<uint64_t>()[word] = 0;
      }
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

#if defined(FERRY_ADDRESS_SANITIZER) || defined(FERRY_THREAD_SANITIZER)
constexpr bool kIsInstrumented = true;  // the probes then do more than multiply and read
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
        for (const StreamPattern pattern : kStreamPatterns)
          is_best = is_best && roof.read_bytes_per_s(bytes, sharing, pattern) <= 2 * best;
      }
    }
    EXPECT_TRUE(is_best) << bytes;
  }
}

/// Bytes a second of the plain loops in assembly over `part_bytes` of each thread's own, both ways counted of those that write.
double loop_bytes_per_s(ThreadPool& pool, std::byte* data, std::size_t part_bytes, StreamAccess access) {
  const int64_t rounds = static_cast<int64_t>((std::size_t{8} << 20) / part_bytes) + 1;
  const auto start = std::chrono::steady_clock::now();
  pool.parallel_for(pool.num_threads(), [&](int64_t part, int) {
    std::byte* own = data + static_cast<std::size_t>(part) * part_bytes;
    for (int64_t r = 0; r < rounds; ++r)
      access == StreamAccess::kRead ? sum_in_assembly(own, part_bytes) : add_one_in_assembly(own, part_bytes);
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double ways = access == StreamAccess::kRead ? 1 : 2;
  return ways * static_cast<double>(rounds * pool.num_threads()) * static_cast<double>(part_bytes) / seconds;
}

/// In the first level, the second and further out: the roof of so many bytes is neither below a plain loop over as many nor
/// above twice that, as that of other levels would be. In turn, until they agree at one moment: neighbours come and go.
TEST(Roof, ThatOfACacheIsWhatAPlainLoopOverAsManyBytesReaches) {
  if (kIsInstrumented) GTEST_SKIP() << "an instrumented probe is no roof";
  ThreadPool pool(2);
  RoofProbe roof(pool, std::size_t{16} << 20);
  AlignedBuffer data(std::size_t{16} << 20);
  std::memset(data.data(), 0, data.size());
  for (const std::size_t part_bytes : {std::size_t{32} << 10, std::size_t{256} << 10, std::size_t{8} << 20}) {
    for (const StreamAccess access : {StreamAccess::kRead, StreamAccess::kRewrite}) {
      const bool is_read = access == StreamAccess::kRead;
      double of_probe = 0, of_loop = 0;
      const auto agree = [&] { return of_probe > 0 && of_loop <= 1.25 * of_probe && of_probe <= 2 * of_loop; };
      for (int i = 0; i < 20 && !agree(); ++i) {
        of_probe = is_read ? roof.read_bytes_per_s(2 * part_bytes) : roof.rewrite_bytes_per_s(2 * part_bytes);
        of_loop = 0;
        for (int t = 0; t < 8; ++t) of_loop = std::max(of_loop, loop_bytes_per_s(pool, data.data(), part_bytes, access));
      }
      EXPECT_TRUE(agree()) << part_bytes << " bytes a thread: " << of_probe << ", in assembly " << of_loop;
    }
  }
}

TEST(Roof, TheLoopsInAssemblyTakeEveryWordOnce) {
  constexpr std::size_t kWords = 192;
  AlignedBuffer data(kWords * sizeof(uint64_t));
  uint64_t sum = 0;
  for (std::size_t word = 0; word < kWords; ++word) sum += data.as<uint64_t>()[word] = (word + 1) * (word + 3);
  EXPECT_EQ(sum_in_assembly(data.data(), data.size()), sum);
  EXPECT_EQ(add_one_in_assembly(data.data(), data.size()), sum);
  EXPECT_EQ(sum_in_assembly(data.data(), data.size()), sum + kWords);
  for (std::size_t word = 0; word < kWords; ++word) EXPECT_EQ(data.as<uint64_t>()[word], (word + 1) * (word + 3) + 1);
}

}  // namespace
}  // namespace ferry
