#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/base/types.h"

// Sixteen floats at a time, written with the compiler's vector extensions instead of intrinsics. The logical width is 16 in
// every build: one register where registers hold 16 floats, two where they hold 8. Both builds therefore do the same arithmetic
// in the same order and give the same bits. (The compiler may fuse a product into a following sum; both builds fuse alike, and
// rounded() and exp() hand out values that no longer take part.)
//
// Everything here lives in the namespace of the instruction set it is compiled for. Shared inline functions (to_float, ...)
// are not used: the linker keeps one copy of those, and it could be the one that older processors cannot run.
//
//   F32x16 sum(0.0f);
//   for_each_vector(cols, [&](int64_t i, auto lanes) { sum = fma(load(x + i, lanes), load(y + i, lanes), sum); });
//   const float dot = horizontal_sum(sum);

namespace ferry::FERRY_ISA_NAMESPACE {

inline constexpr int64_t kLanes = 16;
#ifdef __AVX512F__
inline constexpr int kRegisterLanes = 16;
#else
inline constexpr int kRegisterLanes = 8;
#endif
inline constexpr int kParts = static_cast<int>(kLanes) / kRegisterLanes;

typedef float RegF32 __attribute__((vector_size(kRegisterLanes * 4)));
typedef int32_t RegI32 __attribute__((vector_size(kRegisterLanes * 4)));
typedef uint32_t RegU32 __attribute__((vector_size(kRegisterLanes * 4)));
typedef uint16_t RegU16 __attribute__((vector_size(kRegisterLanes * 2)));
typedef float HalfF32 __attribute__((vector_size(32)));  // the 8 lanes that a horizontal reduction starts from

/// 16 floats. A float converts implicitly: it fills all lanes.
struct F32x16 {
  RegF32 part[kParts];
  F32x16() = default;
  [[gnu::always_inline]] F32x16(float x) {                    // NOLINT: implicit, so that `v * 2.0f` reads as it should
    for (int i = 0; i < kParts; ++i) part[i] = x - RegF32{};  // x - 0 is x, minus zero included: a plain broadcast
  }
};

/// 16 signed integers; a comparison gives -1 in the lanes where it holds and 0 elsewhere.
struct I32x16 {
  RegI32 part[kParts];
  I32x16() = default;
  [[gnu::always_inline]] I32x16(int32_t x) {  // NOLINT: implicit
    for (int i = 0; i < kParts; ++i) part[i] = RegI32{} + x;
  }
};

namespace detail {

/// Applies `fn` to the matching registers of the arguments. Indices are constants so that the registers never go to memory.
template <class Out, class Fn, class... In>
[[gnu::always_inline]] inline Out map(Fn fn, const In&... in) {
  Out out;
  out.part[0] = fn(in.part[0]...);
  if constexpr (kParts == 2) out.part[kParts - 1] = fn(in.part[kParts - 1]...);
  return out;
}

/// a * b + c, rounded once at every level of optimization: it does not wait for the compiler to fuse.
[[gnu::always_inline]] inline RegF32 fma(RegF32 a, RegF32 b, RegF32 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  for (int i = 0; i < kRegisterLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

}  // namespace detail

[[gnu::always_inline]] inline F32x16 operator+(F32x16 a, F32x16 b) {
  return detail::map<F32x16>([](RegF32 x, RegF32 y) { return x + y; }, a, b);
}
[[gnu::always_inline]] inline F32x16 operator-(F32x16 a, F32x16 b) {
  return detail::map<F32x16>([](RegF32 x, RegF32 y) { return x - y; }, a, b);
}
[[gnu::always_inline]] inline F32x16 operator*(F32x16 a, F32x16 b) {
  return detail::map<F32x16>([](RegF32 x, RegF32 y) { return x * y; }, a, b);
}
[[gnu::always_inline]] inline F32x16 operator/(F32x16 a, F32x16 b) {
  return detail::map<F32x16>([](RegF32 x, RegF32 y) { return x / y; }, a, b);
}
[[gnu::always_inline]] inline I32x16 operator==(F32x16 a, F32x16 b) {
  return detail::map<I32x16>([](RegF32 x, RegF32 y) -> RegI32 { return x == y; }, a, b);
}
[[gnu::always_inline]] inline F32x16 operator-(F32x16 a) {
  return detail::map<F32x16>([](RegF32 x) { return -x; }, a);
}
[[gnu::always_inline]] inline I32x16 operator>(F32x16 a, F32x16 b) {
  return detail::map<I32x16>([](RegF32 x, RegF32 y) -> RegI32 { return x > y; }, a, b);
}
[[gnu::always_inline]] inline I32x16 operator<(F32x16 a, F32x16 b) { return b > a; }
[[gnu::always_inline]] inline I32x16 operator+(I32x16 a, I32x16 b) {
  return detail::map<I32x16>([](RegI32 x, RegI32 y) { return x + y; }, a, b);
}
[[gnu::always_inline]] inline I32x16 operator-(I32x16 a, I32x16 b) {
  return detail::map<I32x16>([](RegI32 x, RegI32 y) { return x - y; }, a, b);
}
[[gnu::always_inline]] inline I32x16 operator&(I32x16 a, I32x16 b) {
  return detail::map<I32x16>([](RegI32 x, RegI32 y) { return x & y; }, a, b);
}
[[gnu::always_inline]] inline I32x16 operator|(I32x16 a, I32x16 b) {
  return detail::map<I32x16>([](RegI32 x, RegI32 y) { return x | y; }, a, b);
}
[[gnu::always_inline]] inline I32x16 operator<<(I32x16 a, int bits) {
  return detail::map<I32x16>([bits](RegI32 x) { return x << bits; }, a);
}
/// Arithmetic shift: the sign is kept.
[[gnu::always_inline]] inline I32x16 operator>>(I32x16 a, int bits) {
  return detail::map<I32x16>([bits](RegI32 x) { return x >> bits; }, a);
}

/// a * b + c, rounded once.
[[gnu::always_inline]] inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return detail::map<F32x16>([](RegF32 x, RegF32 y, RegF32 z) { return detail::fma(x, y, z); }, a, b, c);
}
/// `a` where the mask is set, else `b`.
[[gnu::always_inline]] inline F32x16 select(I32x16 mask, F32x16 a, F32x16 b) {
  return detail::map<F32x16>([](RegI32 m, RegF32 x, RegF32 y) -> RegF32 { return m ? x : y; }, mask, a, b);
}
[[gnu::always_inline]] inline I32x16 select(I32x16 mask, I32x16 a, I32x16 b) {
  return detail::map<I32x16>([](RegI32 m, RegI32 x, RegI32 y) -> RegI32 { return m ? x : y; }, mask, a, b);
}
/// The larger of each pair; `b` where either is NaN.
[[gnu::always_inline]] inline F32x16 max(F32x16 a, F32x16 b) { return select(a > b, a, b); }
[[gnu::always_inline]] inline F32x16 min(F32x16 a, F32x16 b) { return select(b > a, a, b); }
[[gnu::always_inline]] inline I32x16 bit_cast_int(F32x16 a) {
  return detail::map<I32x16>([](RegF32 x) { return reinterpret_cast<RegI32>(x); }, a);
}
[[gnu::always_inline]] inline F32x16 bit_cast_float(I32x16 a) {
  return detail::map<F32x16>([](RegI32 x) { return reinterpret_cast<RegF32>(x); }, a);
}

namespace detail {

/// Lanes 0 to 7 and lanes 8 to 15. The last register is the first one where one holds all lanes.
[[gnu::always_inline]] inline HalfF32 lower_half(const F32x16& a) {
  return __builtin_shufflevector(a.part[0], a.part[kParts - 1], 0, 1, 2, 3, 4, 5, 6, 7);
}
[[gnu::always_inline]] inline HalfF32 upper_half(const F32x16& a) {
  return __builtin_shufflevector(a.part[0], a.part[kParts - 1], 8, 9, 10, 11, 12, 13, 14, 15);
}

}  // namespace detail

/// Sum of the lanes, always in the order of a tree: lane i with i + 8, then i + 4, i + 2, i + 1.
[[gnu::always_inline]] inline float horizontal_sum(F32x16 a) {
  HalfF32 h = detail::lower_half(a) + detail::upper_half(a);
  h += __builtin_shufflevector(h, h, 4, 5, 6, 7, 0, 1, 2, 3);
  h += __builtin_shufflevector(h, h, 2, 3, 0, 1, 6, 7, 4, 5);
  return h[0] + h[1];
}

/// The largest lane; no lane may be NaN.
[[gnu::always_inline]] inline float horizontal_max(F32x16 a) {
  const HalfF32 lower = detail::lower_half(a);
  const HalfF32 upper = detail::upper_half(a);
  HalfF32 h = lower > upper ? lower : upper;
  const HalfF32 by_four = __builtin_shufflevector(h, h, 4, 5, 6, 7, 0, 1, 2, 3);
  h = h > by_four ? h : by_four;
  const HalfF32 by_two = __builtin_shufflevector(h, h, 2, 3, 0, 1, 6, 7, 4, 5);
  h = h > by_two ? h : by_two;
  return h[0] > h[1] ? h[0] : h[1];
}

// Conversion of single values, as in runtime/base/types.h.

[[gnu::always_inline]] inline float widen(float x) { return x; }
[[gnu::always_inline]] inline float widen(bfloat16 x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16); }

/// Rounds to T (to nearest, ties to even; a NaN stays a NaN).
template <class T>
[[gnu::always_inline]] inline T narrow(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    const uint32_t u = __builtin_bit_cast(uint32_t, x);
    const bool is_nan = (u & 0x7fffffffU) > 0x7f800000U;
    return {static_cast<uint16_t>((is_nan ? u | 0x00400000U : u + 0x7fffU + ((u >> 16) & 1U)) >> 16)};
  }
}

/// The value that `x` has after being stored as T. For float it also keeps the compiler from fusing `x` into a later sum.
template <class T>
[[gnu::always_inline]] inline float rounded(float x) {
  if constexpr (std::is_same_v<T, float>) {
#ifdef __clang__  // version 14 has no such barrier, and fuses across one against reassociation
    asm("" : "+x"(x));
    return x;
#else
    return __builtin_assoc_barrier(x);
#endif
  } else {
    return widen(narrow<T>(x));
  }
}

namespace detail {

/// The bits of bfloat16(x) in the upper half of each lane; the lower half is not cleared.
[[gnu::always_inline]] inline RegU32 round_bfloat16(RegF32 x) {
  const RegU32 u = reinterpret_cast<RegU32>(x);
  const RegU32 nearest = u + 0x7fffU + ((u >> 16) & 1U);
  return x == x ? nearest : (u | 0x00400000U);
}

/// One register of 16-bit values, widened with zeros. The only intrinsics here: g++ 12 makes five instructions of
/// __builtin_convertvector where one does it.
[[gnu::always_inline]] inline RegU32 load_widened(const bfloat16* p) {
#ifdef __AVX512F__
  // The form with a full mask: g++ 12 warns about the plain one (its header reads an undefined register on purpose).
  const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p));
  return reinterpret_cast<RegU32>(_mm512_maskz_cvtepu16_epi32(0xffff, raw));
#else
  return reinterpret_cast<RegU32>(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p))));
#endif
}

}  // namespace detail

/// Loads 16 consecutive elements; no alignment is needed.
[[gnu::always_inline]] inline F32x16 load(const float* p) {
  F32x16 out;
  for (int i = 0; i < kParts; ++i) std::memcpy(&out.part[i], p + i * kRegisterLanes, sizeof(RegF32));
  return out;
}
[[gnu::always_inline]] inline F32x16 load(const bfloat16* p) {
  F32x16 out;
  for (int i = 0; i < kParts; ++i) out.part[i] = reinterpret_cast<RegF32>(detail::load_widened(p + i * kRegisterLanes) << 16);
  return out;
}
/// Codes as floats.
[[gnu::always_inline]] inline F32x16 load(const int8_t* p) {
  F32x16 out;
  for (int i = 0; i < kParts; ++i) {
#ifdef __AVX512F__
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p));
    const __m512i wide = _mm512_maskz_cvtepi8_epi32(0xffff, raw);
#else
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p + i * kRegisterLanes)));
#endif
    out.part[i] = __builtin_convertvector(reinterpret_cast<RegI32>(wide), RegF32);
  }
  return out;
}

/// Stores 16 elements, rounded to the element type.
[[gnu::always_inline]] inline void store(float* p, F32x16 x) {
  for (int i = 0; i < kParts; ++i) std::memcpy(p + i * kRegisterLanes, &x.part[i], sizeof(RegF32));
}
[[gnu::always_inline]] inline void store(bfloat16* p, F32x16 x) {
  for (int i = 0; i < kParts; ++i) {
    const RegU16 raw = __builtin_convertvector(detail::round_bfloat16(x.part[i]) >> 16, RegU16);
    std::memcpy(static_cast<void*>(p + i * kRegisterLanes), &raw, sizeof(raw));
  }
}

/// Stores the first `count` lanes, 16 at most, which are integers of -128 to 127, as codes.
[[gnu::always_inline]] inline void store_codes(int8_t* to, F32x16 codes, int64_t count) {
  typedef int8_t RegI8 __attribute__((vector_size(kRegisterLanes)));
  int8_t padded[kLanes];
  for (int i = 0; i < kParts; ++i) {
    const RegI8 part = __builtin_convertvector(__builtin_convertvector(codes.part[i], RegI32), RegI8);
    std::memcpy(padded + i * kRegisterLanes, &part, sizeof(part));
  }
  std::memcpy(to, padded, static_cast<std::size_t>(count));
}

/// Loads `count` < 16 elements; the other lanes are zero. Reads nothing behind the last element.
template <class T>
[[gnu::always_inline]] inline F32x16 load_partial(const T* p, int64_t count) {
  T padded[kLanes] = {};
  std::memcpy(static_cast<void*>(padded), p, static_cast<std::size_t>(count) * sizeof(T));
  return load(padded);
}

/// Stores the first `count` < 16 lanes.
template <class T>
[[gnu::always_inline]] inline void store_partial(T* p, F32x16 x, int64_t count) {
  T padded[kLanes];
  store(padded, x);
  std::memcpy(static_cast<void*>(p), padded, static_cast<std::size_t>(count) * sizeof(T));
}

/// Says at compile time that all lanes are in use, so that one body serves the vectors and the tail of a row.
struct AllLanes {};
template <class T>
[[gnu::always_inline]] inline F32x16 load(const T* p, AllLanes) {
  return load(p);
}
template <class T>
[[gnu::always_inline]] inline F32x16 load(const T* p, int64_t count) {
  return load_partial(p, count);
}
template <class T>
[[gnu::always_inline]] inline void store(T* p, F32x16 x, AllLanes) {
  store(p, x);
}
template <class T>
[[gnu::always_inline]] inline void store(T* p, F32x16 x, int64_t count) {
  store_partial(p, x, count);
}

/// Calls fn(i, lanes) for i = 0, 16, ...: `lanes` is AllLanes, or in a last call the number of elements that are left.
/// `fn` is a generic lambda that hands `lanes` on to load and store.
template <class Fn>
[[gnu::always_inline]] inline void for_each_vector(int64_t size, Fn fn) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) fn(i, AllLanes{});
  if (i < size) fn(i, size - i);
}

/// The values that the lanes have after being stored as T. For float it keeps the compiler from fusing `x` into a later sum.
template <class T>
[[gnu::always_inline]] inline F32x16 rounded(F32x16 x) {
  if constexpr (std::is_same_v<T, float>) {
    for (int i = 0; i < kParts; ++i) asm("" : "+v"(x.part[i]));
    return x;
  } else {
    return detail::map<F32x16>([](RegF32 v) { return reinterpret_cast<RegF32>(detail::round_bfloat16(v) & 0xffff0000U); }, x);
  }
}

/// e^x within 2 units in the last place; 0 below -104, infinity above 88.73, NaN for NaN, gradual underflow between.
///
/// x = n ln2 + r with |r| <= ln2 / 2 (ln2 in two parts, Cody and Waite), e^r by a polynomial of degree 7 (Taylor; its remainder
/// of 5e-9 relative is below float's resolution), 2^n applied in two halves so that neither overflows or underflows early.
[[gnu::always_inline]] inline F32x16 exp(F32x16 x) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;  // 10 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440054690583e-4f;
  constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low mantissa bits
  x = select(x > F32x16(89.0f), 89.0f, x);
  x = select(x < F32x16(-104.0f), -104.0f, x);
  const F32x16 shifted = fma(x, kLog2E, kRoundingShift);
  const F32x16 n = shifted - kRoundingShift;
  const F32x16 r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
  F32x16 p = fma(r, 1.0f / 5040.0f, 1.0f / 720.0f);
  p = fma(p, r, 1.0f / 120.0f);
  p = fma(p, r, 1.0f / 24.0f);
  p = fma(p, r, 1.0f / 6.0f);
  p = fma(p, r, 0.5f);
  p = fma(p, r, 1.0f);
  p = fma(p, r, 1.0f);
  const I32x16 exponent = bit_cast_int(shifted) - I32x16(0x4b400000);
  const I32x16 half = exponent >> 1;
  const F32x16 scale_a = bit_cast_float((half + I32x16(127)) << 23);
  const F32x16 scale_b = bit_cast_float((exponent - half + I32x16(127)) << 23);
  return rounded<float>(p * scale_a * scale_b);
}

/// 1 / (1 + e^-x)
[[gnu::always_inline]] inline F32x16 sigmoid(F32x16 x) { return F32x16(1.0f) / (exp(-x) + 1.0f); }
/// x / (1 + e^-x)
[[gnu::always_inline]] inline F32x16 silu(F32x16 x) { return x / (exp(-x) + 1.0f); }

}  // namespace ferry::FERRY_ISA_NAMESPACE
