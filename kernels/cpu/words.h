#pragma once

#include <cstdint>

// Sixteen words of 32 bits at a time: pairs of bf16, as units that multiply those want them. Included only by files that are
// compiled for one instruction set, with AVX-512 at least.

namespace ferry::FERRY_ISA_NAMESPACE {

inline constexpr int kWords = 16;
typedef uint32_t Words __attribute__((vector_size(kWords * 4)));

/// Word j of row i becomes word i of row j: four rounds that each interleave row i with row i + 8.
[[gnu::always_inline]] inline void transpose(Words (&rows)[kWords]) {
  for (int round = 0; round < 4; ++round) {
    Words next[kWords];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const Words a = rows[i], b = rows[i + 8];
      next[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kWords; ++i) rows[i] = next[i];
  }
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
