#pragma once

#include <immintrin.h>

// The instruction of AVX-512 BF16. Included only by files that are compiled for it.

namespace ferry::FERRY_ISA_NAMESPACE {

/// Adds the products of a pair of bf16 to each of 16 sums; it rounds to nearest even, and denormals count as zeros. In
/// assembler for the reason that vnni_matmul.cpp gives.
[[gnu::always_inline]] inline void add_products(__m512& sums, __m512i left, __m512i right) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(left), "v"(right));
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
