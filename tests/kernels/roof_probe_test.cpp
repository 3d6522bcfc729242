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
#include "tests/support/planned_clock.h"

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
TEST(RoofProbeOnHost, NoUnitIsFasterThanItsInstructionsAllow) {
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

using std::chrono::milliseconds;

constexpr std::size_t kStream = std::size_t{4} << 20;
constexpr double kPassBytes = double{2 * (32 << 20)};  // that two threads read in a pass, at least

/// Passes that take so many milliseconds each, in turn: between the looks at the clock at their begins and ends.
PlannedClock clock_of_passes(std::function<int(int64_t pass)> ms) {
  return PlannedClock([ms = std::move(ms)](int64_t look) { return milliseconds(look % 2 == 1 ? ms(look / 2) : 0); });
}

TEST(Roof, AWayToReadIsItsBytesByItsTime) {
  PlannedClock clock = clock_of_passes([](int64_t) { return 20; });
  ThreadPool pool(2);
  RoofProbe roof(pool, kStream, clock);
  for (const ReadSharing sharing : {ReadSharing::kParts, ReadSharing::kPieces}) {
    for (const StreamPattern pattern : kStreamPatterns) {
      EXPECT_DOUBLE_EQ(roof.read_bytes_per_s(kStream, sharing, pattern), kPassBytes / 0.020);
      EXPECT_DOUBLE_EQ(roof.read_bytes_per_s(std::size_t{1} << 30, sharing, pattern), kPassBytes / 0.020) << "the whole stream";
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{100'000}}) {
        const double read = roof.read_bytes_per_s(bytes, sharing, pattern) * 0.020;
        EXPECT_GE(read, kPassBytes) << bytes;
        EXPECT_LE(read, 1.01 * kPassBytes) << bytes;
      }
    }
  }
}

TEST(Roof, TheReadRoofIsThatOfTheFastestWayToRead) {
  constexpr int64_t kPasses = 2 * 2 * static_cast<int64_t>(kStreamPatterns.size());  // two of each way
  for (const int64_t fastest : {int64_t{0}, kPasses / 2 + 1, kPasses - 1}) {
    PlannedClock clock = clock_of_passes([=](int64_t pass) { return pass == fastest ? 10 : 20; });
    ThreadPool pool(2);
    EXPECT_DOUBLE_EQ(RoofProbe(pool, kStream, clock).read_bytes_per_s(kStream), kPassBytes / 0.010) << fastest;
  }
}

TEST(Roof, WhatIsWrittenBackCountsTwice) {
  PlannedClock clock = clock_of_passes([](int64_t pass) { return pass == 3 ? 10 : 20; });
  ThreadPool pool(2);
  EXPECT_DOUBLE_EQ(RoofProbe(pool, kStream, clock).rewrite_bytes_per_s(kStream), 2 * kPassBytes / 0.010);
}

/// A millisecond from look to look: a pass of 4 ms has three turns, and ends a look later.
TEST(Roof, TheMultiplyRoofIsWhatWasMultipliedByItsTime) {
  PlannedClock clock(milliseconds(1));
  ThreadPool pool(1);
  RoofProbe roof(pool, kStream, clock);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8})
    EXPECT_DOUBLE_EQ(roof.flops_per_s(dtype), 3 * multiply_in_registers(dtype, 2000) / 0.005);
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
TEST(RoofOnHost, ThatOfACacheIsWhatAPlainLoopOverAsManyBytesReaches) {
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
