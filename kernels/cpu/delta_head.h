#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"
#include "runtime/base/check.h"

// One value head's part in a call of the gated delta rule: where its columns are, and its decays. What the recurrence and both
// forms of chunks have in common.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kMaxChunk = 64;  // tokens

/// One value head of one sequence.
struct HeadTask {
  const GatedDeltaRuleArgs& args;
  SequenceSpan sequence;
  int64_t v_head;
  float* state;  // [k_dim, v_stride] of v_dim rounded up to 16

  int64_t q_column() const { return v_head / (args.num_v_heads / args.num_k_heads) * args.k_dim; }
  int64_t k_column() const { return args.num_k_heads * args.k_dim + q_column(); }
  int64_t v_column() const { return 2 * args.num_k_heads * args.k_dim + v_head * args.v_dim; }
  float decay(int64_t row) const { return args.decay.raw()[row * args.num_v_heads + v_head]; }
  float beta(int64_t row) const { return args.beta.raw()[row * args.num_v_heads + v_head]; }
};

inline void check_delta_rule(const GatedDeltaRuleArgs& args) {
  FERRY_CHECK(args.qkv.dtype == args.out.dtype);
  FERRY_CHECK_EQ(args.num_v_heads % args.num_k_heads, 0);
  FERRY_CHECK_EQ(args.qkv.cols, 2 * args.num_k_heads * args.k_dim + args.num_v_heads * args.v_dim);
  FERRY_CHECK_EQ(args.out.cols, args.num_v_heads * args.v_dim);
  FERRY_CHECK_EQ(args.sequences.size(), args.states.size());
  FERRY_CHECK_GE(args.chunk, 1);
  FERRY_CHECK_LE(args.chunk, kMaxChunk);
  for (const SequenceSpan& span : args.sequences) {
    FERRY_CHECK(span.form == DeltaForm::kRecurrent || span.num_replayed + span.num_held == 0);
    FERRY_CHECK(span.num_replayed == 0 || args.held.size() == args.sequences.size());
  }
}

/// Elements [i, i + 16) of a row of `count`, zeros behind the end.
template <class T>
[[gnu::always_inline]] inline F32x16 load_row(const T* row, int64_t i, int64_t count) {
  return i + kLanes <= count ? load(row + i) : load_partial(row + i, count - i);
}
template <class T>
[[gnu::always_inline]] inline void store_row(T* row, int64_t i, int64_t count, F32x16 x) {
  if (i + kLanes <= count) {
    store(row + i, x);
  } else {
    store_partial(row + i, x, count - i);
  }
}

/// Asks for `width` bytes of each of `count` rows of a matrix, `stride` bytes apart. One head's columns are short and far
/// apart: the hardware does not see them coming (a piece of 64 tokens waited a tenth of its time for its values).
inline void prefetch_rows(const std::byte* first, int64_t stride, int64_t width, int64_t count) {
  constexpr int64_t kLineBytes = 64;
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t i = 0; i < width; i += kLineBytes) __builtin_prefetch(first + r * stride + i, 0, 2);
  }
}

/// What scales a row to the length `length`: length / sqrt(squares + eps).
inline float length_factor(float length, float squares) {
  constexpr float kNormEps = 1e-6f;
  return length / __builtin_sqrtf(squares + kNormEps);
}

/// The length that queries are scaled to.
inline float query_length(int64_t k_dim) { return 1.0f / __builtin_sqrtf(static_cast<float>(k_dim)); }

/// to = x scaled to `length`, filled up with zeros to a multiple of 16.
template <class T>
inline void normalize_row(const T* x, int64_t count, float length, float* to) {
  F32x16 squares(0.0f);
  for (int64_t i = 0; i < count; i += kLanes) {
    const F32x16 v = load_row(x, i, count);
    squares = fma(v, v, squares);
    store(to + i, v);
  }
  const F32x16 factor(length_factor(length, horizontal_sum(squares)));
  for (int64_t i = 0; i < count; i += kLanes) store(to + i, load(to + i) * factor);
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
