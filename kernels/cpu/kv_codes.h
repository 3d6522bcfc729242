#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/ops.h"

// Rows of the paged cache that are codes (kernels/kv_layout.h), and how they become values: exactly, as a code times a power of
// two. Included only by files that are compiled once per instruction set.

namespace ferry::FERRY_ISA_NAMESPACE {

/// head_dim codes, and the exponents of their groups.
struct CodeRow {
  const int8_t* codes;
  const uint8_t* exponents;
};

/// Row `row` of the cache's keys or values, counted over all runs.
[[gnu::always_inline]] inline CodeRow code_row(const KvLayerView& cache, const std::byte* base, int64_t row) {
  const int64_t slot = row % cache.block_tokens;
  const std::byte* run = base + row / cache.block_tokens * cache.run_bytes();
  return {reinterpret_cast<const int8_t*>(run) + slot * cache.head_dim,
          reinterpret_cast<const uint8_t*>(run) + cache.block_tokens * cache.head_dim + slot * kv_groups(cache.head_dim)};
}

/// What a group's codes are multiplied by; infinity, of which zeros make NaN, for a group that is NaN.
[[gnu::always_inline]] inline float scale_of(uint8_t exponent) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(exponent) << 23);
}

/// Calls fn(i, values, lanes) for each vector of the row's values, `lanes` as of for_each_vector().
template <class Fn>
[[gnu::always_inline]] inline void for_each_value(const CodeRow& row, int64_t head_dim, Fn fn) {
  for_each_vector(head_dim, [&](int64_t i, auto lanes) {
    fn(i, load(row.codes + i, lanes) * F32x16(scale_of(row.exponents[i / kKvGroupCols])), lanes);
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
