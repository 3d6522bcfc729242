#pragma once

#include <immintrin.h>

// The instructions of AVX-512 BF16. Included only by files that are compiled for it. In assembler for the reason that
// vnni_matmul.cpp gives.

namespace ferry::FERRY_ISA_NAMESPACE {

/// Adds the products of a pair of bf16 to each of 16 sums; it rounds to nearest even, and denormals count as zeros.
[[gnu::always_inline]] inline void add_products(__m512& sums, __m512i left, __m512i right) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(left), "v"(right));
}

/// 32 floats rounded to bf16, to nearest even: those of `first`, then those of `second`. Denormals count as zeros.
[[gnu::always_inline]] inline __m512i round_to_bf16(__m512 first, __m512 second) {
  __m512i values;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(values) : "v"(first), "v"(second));
  return values;
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
