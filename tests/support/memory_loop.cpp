#include "tests/support/memory_loop.h"

#include <array>
#include <numeric>

#include "kernels/cpu_features.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

// Eight sums in registers 0 to 7, what was loaded in 8 and 9, ones in 10. A turn is eight lines of 64 bytes.
#define FERRY_LINES(STEP) STEP("0") STEP("1") STEP("2") STEP("3") STEP("4") STEP("5") STEP("6") STEP("7")
#define FERRY_MEMORY_LOOP(STEP, REGISTER, STORE, SUMS)                                               \
  asm volatile(                                                                                      \
      "vpxor %%xmm0, %%xmm0, %%xmm0\n vpxor %%xmm1, %%xmm1, %%xmm1\n vpxor %%xmm2, %%xmm2, %%xmm2\n" \
      "vpxor %%xmm3, %%xmm3, %%xmm3\n vpxor %%xmm4, %%xmm4, %%xmm4\n vpxor %%xmm5, %%xmm5, %%xmm5\n" \
      "vpxor %%xmm6, %%xmm6, %%xmm6\n vpxor %%xmm7, %%xmm7, %%xmm7\n"                                \
      "vpbroadcastq %3, %%" REGISTER                                                                 \
      "10\n"                                                                                         \
      "1:\n" FERRY_LINES(STEP) "add $512, %0\n dec %1\n jnz 1b\n" FERRY_LINES(STORE) "vzeroupper\n"  \
      : "+r"(data), "+r"(turns)                                                                      \
      : "r"((SUMS).data()), "m"(kOne)                                                                \
      : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10")

#define FERRY_SUM512(I) "vpaddq 64*" I "(%0), %%zmm" I ", %%zmm" I "\n"
#define FERRY_ADD512(I)                                                 \
  "vmovdqa64 64*" I "(%0), %%zmm8\n vpaddq %%zmm8, %%zmm" I ", %%zmm" I \
  "\n"                                                                  \
  "vpaddq %%zmm8, %%zmm10, %%zmm9\n vmovdqa64 %%zmm9, 64*" I "(%0)\n"
#define FERRY_STORE512(I) "vmovdqu64 %%zmm" I ", 64*" I "(%2)\n"
#define FERRY_SUM256(I) "vpaddq 64*" I "(%0), %%ymm" I ", %%ymm" I "\n vpaddq 64*" I "+32(%0), %%ymm" I ", %%ymm" I "\n"
#define FERRY_ADD256(I)                                                  \
  "vmovdqa 64*" I "(%0), %%ymm8\n vpaddq %%ymm8, %%ymm" I ", %%ymm" I    \
  "\n"                                                                   \
  "vpaddq %%ymm8, %%ymm10, %%ymm9\n vmovdqa %%ymm9, 64*" I               \
  "(%0)\n"                                                               \
  "vmovdqa 64*" I "+32(%0), %%ymm8\n vpaddq %%ymm8, %%ymm" I ", %%ymm" I \
  "\n"                                                                   \
  "vpaddq %%ymm8, %%ymm10, %%ymm9\n vmovdqa %%ymm9, 64*" I "+32(%0)\n"
#define FERRY_STORE256(I) "vmovdqu %%ymm" I ", 32*" I "(%2)\n"

constexpr uint64_t kOne = 1;

}  // namespace

uint64_t sum_in_assembly(const std::byte* data, std::size_t bytes) {
  FERRY_CHECK(bytes > 0 && bytes % kLoopUnitBytes == 0);
  std::size_t turns = bytes / kLoopUnitBytes;
  std::array<uint64_t, 64> sums;
  if (has_avx512()) {
    FERRY_MEMORY_LOOP(FERRY_SUM512, "zmm", FERRY_STORE512, sums);
  } else {
    FERRY_CHECK(has_avx2());
    sums.fill(0);  // half of them are not used
    FERRY_MEMORY_LOOP(FERRY_SUM256, "ymm", FERRY_STORE256, sums);
  }
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

uint64_t add_one_in_assembly(std::byte* data, std::size_t bytes) {
  FERRY_CHECK(bytes > 0 && bytes % kLoopUnitBytes == 0);
  std::size_t turns = bytes / kLoopUnitBytes;
  std::array<uint64_t, 64> sums;
  if (has_avx512()) {
    FERRY_MEMORY_LOOP(FERRY_ADD512, "zmm", FERRY_STORE512, sums);
  } else {
    FERRY_CHECK(has_avx2());
    sums.fill(0);  // half of them are not used
    FERRY_MEMORY_LOOP(FERRY_ADD256, "ymm", FERRY_STORE256, sums);
  }
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

}  // namespace ferry
