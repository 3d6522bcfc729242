#pragma once

#include "kernels/cpu/bf16_attention.h"
#include "kernels/cpu/segments.h"
#include "runtime/base/check.h"

// Attention within segments for units that multiply bf16 (bf16_attention.h): as in segment_attention.cpp, with weights of one
// bf16. K and V^T are copied once a task into tiles; the task is as many rows of one head as leave every thread some tasks. A
// row's result depends on its segment alone.
//
// Included only by files that are compiled for one instruction set, with AVX-512 at least.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// Working memory of a task.
struct SegmentWorkspace {
  SegmentWorkspace(const HeadShape& shape, int64_t num_keys, int64_t key_block) {
    const int64_t steps = (num_keys + kKeyStep - 1) / kKeyStep;
    const int64_t key_elements = steps * shape.key_step_elements(), value_elements = steps * shape.value_step_elements();
    const int64_t bf16_elements = key_elements + value_elements + shape.query_elements() + key_block * kRows;
    ScratchPieces pieces(bf16_elements / 2 + key_block * kRows + shape.sum_elements() + 2 * kRows);
    keys = pieces.take_bf16(key_elements);
    values = pieces.take_bf16(value_elements);
    queries = pieces.take_bf16(shape.query_elements());
    weights = pieces.take_bf16(key_block * kRows);
    scores = pieces.take(key_block * kRows);
    sums = pieces.take(shape.sum_elements());
    row_max = pieces.take(kRows);
    row_alpha = pieces.take(kRows);
  }

  uint16_t* keys;  // of the segment, as values
  uint16_t* values;
  uint16_t* queries;
  uint16_t* weights;  // [steps of a block][2] tiles of [pair of keys, row, 2]
  float* scores;      // [keys of a block, kRows]
  float* sums;
  float* row_max;    // [kRows]
  float* row_alpha;  // [kRows]
};

[[gnu::always_inline]] inline const uint16_t* head_row(const ConstMatrixView& view, int64_t row, int64_t first_col) {
  return reinterpret_cast<const uint16_t*>(view.data) + row * view.row_stride + first_col;
}

/// 2^x for x <= 0 within 1.1e-4 of it, and exactly 1 for 0: weights keep 8 bits. 2^x = 2^n 2^f with n the next lower integer,
/// 2^f by a polynomial of least relative error on [0, 1]. `one` is its constant term.
[[gnu::always_inline]] inline __m512 exp2(__m512 x, float one = 1.0f) {
  const __m512 f = _mm512_maskz_reduce_ps(0xffff, x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.0770675715f), f, _mm512_set1_ps(0.227644417f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.695116916f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(one));
  return _mm512_maskz_scalef_ps(0xffff, p, x);
}

/// 2^x, and half of the last bit that bf16 keeps: 2^f lies between 1 and 2, where that half is 2^-8. What is left without the
/// lower bits is 2^x to nearest.
[[gnu::always_inline]] inline __m512 exp2_and_half(__m512 x) { return exp2(x, 1.00390625f); }

/// Two keys' weights of 16 rows as pairs of bf16, without the lower bits.
[[gnu::always_inline]] inline __m512i pack_pair(__m512 first, __m512 second) {
  const __m512i low = _mm512_maskz_srli_epi32(0xffff, _mm512_castps_si512(first), 16);
  return _mm512_mask_mov_epi16(low, 0xaaaaaaaaU, _mm512_castps_si512(second));
}

/// Turns the scores of a block into weights, and updates maximum and alpha of 16 rows. Keys behind the last weigh nothing.
/// Returns whether any alpha is not one.
bool update_weights(const SegmentWorkspace& w, int64_t half, int64_t num_keys, float scale) {
  const float* scores = w.scores + half * kSide;
  const __m512 old_max = _mm512_loadu_ps(w.row_max + half * kSide);
  const __m512 new_max = find_max<false>(scores, num_keys, old_max, __m512i{});
  _mm512_storeu_ps(w.row_max + half * kSide, new_max);
  const __m512 factor = _mm512_set1_ps(scale), shift = new_max * factor;
  const auto weight_of = [&](int64_t j) __attribute__((always_inline)) {
    return exp2_and_half(_mm512_fmsub_ps(_mm512_load_ps(scores + j * kRows), factor, shift));
  };
  const auto place_of = [&](int64_t key) __attribute__((always_inline)) { return w.weights + pair_offset(key, half); };
  int64_t j = 0;
  for (; j + 1 < num_keys; j += 2) _mm512_store_si512(place_of(j), pack_pair(weight_of(j), weight_of(j + 1)));
  if (j < num_keys) {
    _mm512_store_si512(place_of(j), pack_pair(weight_of(j), _mm512_setzero_ps()));
    j += 2;
  }
  for (; j % kKeyStep != 0; j += 2) _mm512_store_si512(place_of(j), _mm512_setzero_si512());
  // Before the first block the maximum is minus infinity, of which exp2 knows nothing.
  const __m512 fall = _mm512_fmsub_ps(old_max, factor, shift);
  const __m512 alpha = exp2(_mm512_maskz_max_ps(0xffff, _mm512_set1_ps(-200.0f), fall));
  _mm512_storeu_ps(w.row_alpha + half * kSide, alpha);
  return _mm512_cmp_ps_mask(alpha, _mm512_set1_ps(1.0f), _CMP_NEQ_UQ) != 0;
}

/// Rows [first, first + count) of the task, at most 32.
template <class Unit>
void attend(const SegmentAttentionArgs& args, const HeadShape& shape, const SegmentTask& task, int64_t first, int64_t count,
            const SegmentWorkspace& w) {
  const int64_t first_col = task.head * shape.num_cols;
  const float scale = 1.44269504088896341f / __builtin_sqrtf(static_cast<float>(shape.num_cols));
  load_queries(
      shape, count, [&](int64_t r) { return head_row(args.q, first + r, first_col); }, w.queries);
  for (int64_t r = 0; r < kRows; r += kSide) _mm512_storeu_ps(w.row_max + r, _mm512_set1_ps(-__builtin_inff()));
  std::memset(w.sums, 0, static_cast<std::size_t>(shape.sum_elements()) * sizeof(float));
  for (int64_t key = 0; key < task.num_keys(); key += Unit::kKeyBlock) {
    const int64_t num_keys = task.num_keys() - key < Unit::kKeyBlock ? task.num_keys() - key : Unit::kKeyBlock;
    const int64_t first_step = key / kKeyStep, num_steps = (num_keys + kKeyStep - 1) / kKeyStep;
    Unit::template multiply_keys<2>(shape, w.keys + first_step * shape.key_step_elements(), num_steps, w.queries, w.scores);
    const bool low = update_weights(w, 0, num_keys, scale), high = update_weights(w, 1, num_keys, scale);
    if (low || high) rescale_sums<2>(shape, w.row_alpha, w.sums);
    Unit::template multiply_values<2>(shape, w.values + first_step * shape.value_step_elements(), num_steps, w.weights, w.sums);
  }
  store_output(shape, w.sums, count, [&](int64_t r) { return row_of<bfloat16>(args.out, first + r) + first_col; });
}

template <class Unit>
void run_segment_attention(ThreadPool& pool, const SegmentAttentionArgs& args) {
  check_segments(args);
  const HeadShape shape(args.out.cols / args.num_heads);
  FERRY_CHECK_LE(shape.num_cols, kMaxHeadDim);
  int64_t task_rows = (args.out.rows + kRows - 1) / kRows * kRows;
  while (task_rows > 4 * kRows && count_segment_tasks(args, task_rows) < 8 * pool.num_threads()) {
    task_rows = (task_rows / 2 + kRows - 1) / kRows * kRows;
  }
  pool.parallel_for(count_segment_tasks(args, task_rows), [&](int64_t task_idx, int) {
    const SegmentTask task = find_segment_task(args, task_rows, task_idx);
    [[maybe_unused]] const Unit unit{};
    const SegmentWorkspace w(shape, task.num_keys(), Unit::kKeyBlock);
    const auto row_in = [&](const ConstMatrixView& view) {
      return [&](int64_t key) { return head_row(view, task.begin + key, task.head * shape.num_cols); };
    };
    load_keys(shape, task.num_keys(), row_in(args.k), w.keys);
    load_values(shape, task.num_keys(), row_in(args.v), w.values);
    for (int64_t r = 0; r < task.num_rows; r += kRows) {
      attend<Unit>(args, shape, task, task.first_row + r, task.num_rows - r < kRows ? task.num_rows - r : kRows, w);
    }
  });
}

/// bf16, and heads of up to kMaxHeadDim columns.
bool takes_segment_attention(const SegmentAttentionArgs& args) {
  return args.q.dtype == DType::kBF16 && args.out.cols <= kMaxHeadDim * args.num_heads;
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
