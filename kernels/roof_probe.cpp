#include "kernels/roof_probe.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/cpu_features.h"
#include "runtime/base/check.h"

// Every function is compiled for the instruction set that it names, and is called only where the processor has it. This file is
// compiled with full optimisation in every build: sums that lie in memory would measure the memory.

namespace ferry {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kPrefetchBytes = 4096;  // one page ahead: the hardware's prefetcher stops at its end
constexpr std::size_t kLinesInTurn = kStreamUnitBytes / kLineBytes;
static_assert(kLinesInTurn == 8);

/// Makes `value` unknown to the optimiser, which then neither computes with it nor takes two such values for the same one.
/// Costs no instruction. (Clang asks the function itself, not its caller, whether there are registers of that width.)
template <class T>
[[gnu::always_inline]] inline void keep(T& value) {
  asm volatile("" : "+v"(value));
}
template <class T>
requires(sizeof(T) == sizeof(__m256)) [[gnu::always_inline, gnu::target("avx2")]] inline void keep(T& value) {
  asm volatile("" : "+v"(value));
}
template <class T>
requires(sizeof(T) == sizeof(__m512)) [[gnu::always_inline, gnu::target("avx512f")]] inline void keep(T& value) {
  asm volatile("" : "+v"(value));
}

// Each takes `kLinesInTurn` lines a turn, a share of them from each of kStreams places that lie `apart` bytes from one another.
// What is written back is what was read, with bits of a word turned over that is zero and that the optimiser does not know.
// Sums stay in registers to the end: parts that fit the first level are read in few hundred cycles.

template <std::size_t kStreams, bool kPrefetch, StreamAccess kAccess>
__attribute__((target("avx512f"))) uint64_t walk_avx512(std::byte* data, std::size_t bytes) {
  constexpr std::size_t kLines = kLinesInTurn / kStreams;
  const std::size_t apart = bytes / kStreams;
  __m512i sums[kLinesInTurn] = {};
  __m512i zero = _mm512_setzero_si512();
  keep(zero);
  for (__m512i& sum : sums) keep(sum);
  for (std::size_t at = 0; at < apart; at += kLines * kLineBytes) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      for (std::size_t i = 0; i < kLines; ++i) {
        std::byte* line = data + s * apart + at + i * kLineBytes;
        if constexpr (kPrefetch) _mm_prefetch(line + kPrefetchBytes, _MM_HINT_T1);
        const __m512i words = _mm512_load_si512(line);
        if constexpr (kAccess == StreamAccess::kRewrite) _mm512_store_si512(line, _mm512_xor_si512(words, zero));
        __m512i& sum = sums[s * kLines + i];
        sum = _mm512_xor_si512(sum, words);
      }
    }
  }
  for (__m512i& sum : sums) keep(sum);
  for (std::size_t i = 1; i < kLinesInTurn; ++i) sums[0] = _mm512_xor_si512(sums[0], sums[i]);
  std::array<uint64_t, 8> words;
  _mm512_storeu_si512(words.data(), sums[0]);
  return std::accumulate(words.begin(), words.end(), uint64_t{0});
}

template <std::size_t kStreams, bool kPrefetch, StreamAccess kAccess>
__attribute__((target("avx2"))) uint64_t walk_avx2(std::byte* data, std::size_t bytes) {
  constexpr std::size_t kLines = kLinesInTurn / kStreams;
  const std::size_t apart = bytes / kStreams;
  __m256i sums[kLinesInTurn] = {};
  __m256i zero = _mm256_setzero_si256();
  keep(zero);
  for (__m256i& sum : sums) keep(sum);
  for (std::size_t at = 0; at < apart; at += kLines * kLineBytes) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      for (std::size_t i = 0; i < kLines; ++i) {
        std::byte* line = data + s * apart + at + i * kLineBytes;
        if constexpr (kPrefetch) _mm_prefetch(line + kPrefetchBytes, _MM_HINT_T1);
        auto* halves = reinterpret_cast<__m256i*>(line);
        const __m256i low = _mm256_load_si256(halves), high = _mm256_load_si256(halves + 1);
        if constexpr (kAccess == StreamAccess::kRewrite) {
          _mm256_store_si256(halves, _mm256_xor_si256(low, zero));
          _mm256_store_si256(halves + 1, _mm256_xor_si256(high, zero));
        }
        __m256i& sum = sums[s * kLines + i];
        sum = _mm256_xor_si256(sum, _mm256_xor_si256(low, high));
      }
    }
  }
  for (__m256i& sum : sums) keep(sum);
  for (std::size_t i = 1; i < kLinesInTurn; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  std::array<uint64_t, 4> words;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words.data()), sums[0]);
  return std::accumulate(words.begin(), words.end(), uint64_t{0});
}

template <StreamAccess kAccess>
uint64_t walk_plain(std::byte* data, std::size_t bytes) {
  std::array<uint64_t, 8> sums{};
  uint64_t zero = 0;
  asm volatile("" : "+r"(zero));
  for (std::size_t at = 0; at < bytes; at += kLineBytes) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      uint64_t& word = *reinterpret_cast<uint64_t*>(data + at + 8 * i);
      sums[i] ^= word;
      if constexpr (kAccess == StreamAccess::kRewrite) word ^= zero;
    }
  }
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

template <std::size_t kStreams, bool kPrefetch, StreamAccess kAccess>
uint64_t walk_widest(std::byte* data, std::size_t bytes) {
  if (has_avx512()) return walk_avx512<kStreams, kPrefetch, kAccess>(data, bytes);
  if (has_avx2()) return walk_avx2<kStreams, kPrefetch, kAccess>(data, bytes);
  return walk_plain<kAccess>(data, bytes);
}

template <StreamAccess kAccess>
uint64_t walk(std::byte* data, std::size_t bytes, StreamPattern pattern) {
  switch (pattern) {
    case StreamPattern::kOne: return walk_widest<1, false, kAccess>(data, bytes);
    case StreamPattern::kOnePrefetched: return walk_widest<1, true, kAccess>(data, bytes);
    case StreamPattern::kFour: return walk_widest<4, false, kAccess>(data, bytes);
    case StreamPattern::kFourPrefetched: return walk_widest<4, true, kAccess>(data, bytes);
  }
  return 0;
}

// Chains enough to hide the latency of a multiply-add on two ports. They must differ for the optimiser, or it keeps one of
// those that start equal and the count is a multiple of what was done; so every sum starts as a value that it does not know.
// Likewise a product that chains have in common would be computed once: keep() between them makes its factor another.
constexpr int kChains = 12;

__attribute__((target("avx512f"))) double multiply_avx512(int64_t rounds) {
  __m512 sums[kChains] = {};
  __m512 x = _mm512_set1_ps(1e-3f), y = _mm512_set1_ps(1e-3f);
  for (__m512& sum : sums) keep(sum);
  for (int64_t r = 0; r < rounds; ++r) {
    keep(x);
    keep(y);
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(x, y, sum);
  }
  for (__m512& sum : sums) keep(sum);
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx2,fma"))) double multiply_avx2(int64_t rounds) {
  __m256 sums[kChains] = {};
  __m256 x = _mm256_set1_ps(1e-3f), y = _mm256_set1_ps(1e-3f);
  for (__m256& sum : sums) keep(sum);
  for (int64_t r = 0; r < rounds; ++r) {
    keep(x);
    keep(y);
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(x, y, sum);
  }
  for (__m256& sum : sums) keep(sum);
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx512f,avx512bf16"))) double multiply_avx512_bf16(int64_t rounds) {
  __m512 sums[kChains] = {};
  __m512i x = _mm512_set1_epi32(0x3a833a83), y = x;
  for (__m512& sum : sums) keep(sum);
  for (int64_t r = 0; r < rounds; ++r) {
    keep(x);
    keep(y);
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
  }
  for (__m512& sum : sums) keep(sum);
  return 2.0 * 32 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx512f,avx512vnni"))) double multiply_avx512_vnni(int64_t rounds) {
  __m512i sums[kChains] = {};
  __m512i x = _mm512_set1_epi8(1), y = x;
  for (__m512i& sum : sums) keep(sum);
  for (int64_t r = 0; r < rounds; ++r) {
    keep(x);
    keep(y);
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, x, y);
  }
  for (__m512i& sum : sums) keep(sum);
  return 2.0 * 64 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx2"))) double multiply_avx2_int8(int64_t rounds) {
  __m256i sums[kChains] = {};
  __m256i x = _mm256_set1_epi8(1), y = x, ones = _mm256_set1_epi16(1);
  for (__m256i& sum : sums) keep(sum);
  for (int64_t r = 0; r < rounds; ++r) {
    for (__m256i& sum : sums) {
      keep(x);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
    }
  }
  for (__m256i& sum : sums) keep(sum);
  return 2.0 * 32 * kChains * static_cast<double>(rounds);
}
/// Four accumulator tiles of 16 x 16 sums, two tiles of 16 rows of 64 bytes a side: as a matrix product would use them.
template <bool kInt8>
__attribute__((target("amx-tile,amx-bf16,amx-int8"))) double multiply_amx(int64_t rounds) {
  struct alignas(64) Layout {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static const Layout layout;  // not on the stack: GCC 12 takes _tile_loadconfig to read 8 bytes of it
  _tile_loadconfig(&layout);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t r = 0; r < rounds; ++r) {
    if constexpr (kInt8) {
      _tile_dpbsud(0, 4, 6);
      _tile_dpbsud(1, 4, 7);
      _tile_dpbsud(2, 5, 6);
      _tile_dpbsud(3, 5, 7);
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_release();
  return 4.0 * 2 * 16 * 16 * (kInt8 ? 64 : 32) * static_cast<double>(rounds);
}

enum class Unit { kNone, kAvx2, kAvx2Int8, kAvx512, kAvx512Bf16, kAvx512Vnni, kAmxBf16, kAmxInt8 };

/// How many of these a set of kernels may not use: amx, avx512_bf16, avx512_vnni, avx512, avx2. 0 for other names.
std::size_t first_allowed(std::string_view matmul) {
  constexpr std::array<std::string_view, 6> kNames = {"amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2", "ref"};
  const auto* const found = std::find(kNames.begin(), kNames.end(), matmul);
  return found == kNames.end() ? 0 : static_cast<std::size_t>(found - kNames.begin());
}

Unit find_unit(DType dtype, std::string_view matmul) {
  const std::size_t first = first_allowed(matmul);
  const bool amx = first <= 0 && has_amx(), bf16 = first <= 1 && has_avx512_bf16(), vnni = first <= 2 && has_avx512_vnni();
  const bool avx512 = first <= 3 && has_avx512(), avx2 = first <= 4 && has_avx2();
  if (dtype == DType::kI8) {
    if (amx) return Unit::kAmxInt8;
    if (vnni) return Unit::kAvx512Vnni;
    return avx2 ? Unit::kAvx2Int8 : Unit::kNone;
  }
  if (dtype == DType::kBF16) {
    if (amx) return Unit::kAmxBf16;
    if (bf16) return Unit::kAvx512Bf16;
  }
  if (avx512) return Unit::kAvx512;
  if (avx2) return Unit::kAvx2;
  return Unit::kNone;
}

double multiply_plain(int64_t rounds) {
  float sums[4] = {};
  float x = 1e-3f;
  for (int64_t r = 0; r < rounds; ++r) {
    for (float& sum : sums) {
      keep(x);
      sum += x * x;
      keep(sum);
    }
  }
  return 2.0 * 4 * static_cast<double>(rounds);
}

}  // namespace

uint64_t walk_stream(std::byte* data, std::size_t bytes, StreamPattern pattern, StreamAccess access) {
  FERRY_CHECK_EQ(bytes % kStreamUnitBytes, std::size_t{0});
  return access == StreamAccess::kRead ? walk<StreamAccess::kRead>(data, bytes, pattern)
                                       : walk<StreamAccess::kRewrite>(data, bytes, pattern);
}

double multiply_in_registers(DType dtype, int64_t rounds, std::string_view matmul) {
  switch (find_unit(dtype, matmul)) {
    case Unit::kAmxInt8: return multiply_amx<true>(rounds);
    case Unit::kAmxBf16: return multiply_amx<false>(rounds);
    case Unit::kAvx512Vnni: return multiply_avx512_vnni(rounds);
    case Unit::kAvx512Bf16: return multiply_avx512_bf16(rounds);
    case Unit::kAvx512: return multiply_avx512(rounds);
    case Unit::kAvx2: return multiply_avx2(rounds);
    case Unit::kAvx2Int8: return multiply_avx2_int8(rounds);
    case Unit::kNone: return multiply_plain(rounds);
  }
  return 0;
}

const char* multiply_unit(DType dtype, std::string_view matmul) {
  switch (find_unit(dtype, matmul)) {
    case Unit::kAmxInt8: return "amx_int8";
    case Unit::kAmxBf16: return "amx_bf16";
    case Unit::kAvx512Vnni: return "avx512_vnni";
    case Unit::kAvx512Bf16: return "avx512_bf16";
    case Unit::kAvx512: return "avx512_fma";
    case Unit::kAvx2: return "avx2_fma";
    case Unit::kAvx2Int8: return "avx2_maddubs";
    case Unit::kNone: return "scalar";
  }
  return "";
}

}  // namespace ferry
