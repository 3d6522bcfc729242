#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/segments.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/words.h"
#include "kernels/op_table.h"
#include "runtime/base/check.h"

// Attention within segments for units that multiply bf16: as in segment_attention.cpp, transposed throughout, so that a
// register's lanes and a tile's columns are rows of the batch and no sum runs across them.
//
//   S^T [keys, 32 rows] = K Q^T;   P = 2^(c S - c max), rounded to bf16;   O^T [head_dim, 32 rows] = alpha O^T + V^T P
//
// with c = head_dim^-0.5 log2(e). K and V^T are copied once a task into tiles; the task is as many rows of one head as leave
// every thread some tasks. A row's result depends on its segment alone.
//
// A unit has
//   kKeyBlock          keys between two updates of the maximum, a multiple of 32: S and P of a block stay in the cache
//   a constructor      makes the unit this thread's until it is destroyed
//   multiply_keys      S^T of `num_steps` times 32 keys from step `first_step` on
//   multiply_values    O^T += V^T P of the same
//
// Included only by files that are compiled for one instruction set, with AVX-512 at least.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kSide = 16;                 // rows and fp32 columns of a tile
constexpr int64_t kPairCols = 32;             // bf16 columns of a tile
constexpr int64_t kTile = kSide * kPairCols;  // bf16 elements
constexpr int64_t kRows = 32;                 // rows of the batch at a time: two tiles
constexpr int64_t kKeyStep = 32;              // keys that one tile of V^T holds
constexpr int64_t kMaxHeadDim = 256;

/// Working memory of a task.
struct Workspace {
  Workspace(int64_t head_dim, int64_t num_keys, int64_t key_block)
      : num_cols(head_dim),
        k_tiles((head_dim + kPairCols - 1) / kPairCols),
        d_tiles((head_dim + kSide) / kSide),
        key_steps((num_keys + kKeyStep - 1) / kKeyStep) {
    const int64_t bf16_elements = key_steps * (2 * k_tiles + d_tiles) * kTile + 2 * k_tiles * kTile + key_block * kRows;
    float* next = thread_scratch(bf16_elements / 2 + key_block * kRows + d_tiles * kSide * kRows + 2 * kRows);
    const auto take = [&next](int64_t count) {
      float* piece = next;
      next += count;
      return piece;
    };
    const auto take_bf16 = [&](int64_t count) { return reinterpret_cast<uint16_t*>(take(count / 2)); };
    keys = take_bf16(key_steps * 2 * k_tiles * kTile);
    values = take_bf16(key_steps * d_tiles * kTile);
    queries = take_bf16(2 * k_tiles * kTile);
    weights = take_bf16(key_block * kRows);
    scores = take(key_block * kRows);
    sums = take(d_tiles * kSide * kRows);
    row_max = take(kRows);
    row_alpha = take(kRows);
  }

  int64_t num_cols;   // head_dim
  int64_t k_tiles;    // of a row of K
  int64_t d_tiles;    // of a column of V^T, one more row than head_dim
  int64_t key_steps;  // of the segment

  uint16_t* keys;     // [key_steps][2 halves of the step][k_tiles] tiles of [key, column]
  uint16_t* values;   // [key_steps][d_tiles] tiles of [column, key]
  uint16_t* queries;  // [k_tiles][2] tiles of [pair of columns, row, 2]
  uint16_t* weights;  // [steps of the block][2] tiles of [pair of keys, row, 2]
  float* scores;      // [keys of a block, kRows]
  float* sums;        // [d_tiles * 16, kRows] O^T before the division
  float* row_max;     // [kRows]
  float* row_alpha;   // [kRows]
};

[[gnu::always_inline]] inline const uint16_t* head_row(const ConstMatrixView& view, int64_t row, int64_t first_col) {
  return reinterpret_cast<const uint16_t*>(view.data) + row * view.row_stride + first_col;
}

/// The lowest bits of a mask, as many as there are columns from `d` on.
[[gnu::always_inline]] inline uint32_t mask_from(int64_t d, int64_t num_cols) {
  return num_cols - d >= 32 ? 0xffffffffU : num_cols <= d ? 0U : (1U << (num_cols - d)) - 1;
}

/// Copies one head's keys; what lies behind the last key or column is zeros.
void load_keys(const SegmentAttentionArgs& args, const SegmentTask& task, int64_t head_dim, const Workspace& w) {
  std::memset(w.keys, 0, static_cast<std::size_t>(w.key_steps * 2 * w.k_tiles * kTile) * 2);
  for (int64_t key = 0; key < task.num_keys(); ++key) {
    const uint16_t* from = head_row(args.k, task.begin + key, task.head * head_dim);
    uint16_t* to = w.keys + key / kSide * w.k_tiles * kTile + key % kSide * kPairCols;
    for (int64_t d = 0; d < head_dim; d += kPairCols, to += kTile) {
      const int64_t count = head_dim - d < kPairCols ? head_dim - d : kPairCols;
      std::memcpy(to, from + d, static_cast<std::size_t>(count) * 2);
    }
  }
}

/// Columns [d, d + 16) of a row of values, each widened to a word; zeros behind the last.
[[gnu::always_inline]] inline Words load_wide(const uint16_t* row, int64_t d, int64_t head_dim) {
  const __m256i cols = _mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask_from(d, head_dim)), row + d);
  return reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, cols));
}

/// Transposes one head's values, in words of two keys. Behind the last column is one of ones, whose sum is that of the weights.
void load_values(const SegmentAttentionArgs& args, const SegmentTask& task, int64_t head_dim, const Workspace& w) {
  constexpr uint16_t kOne = 0x3f80;
  for (int64_t key = 0; key < w.key_steps * kKeyStep; key += kKeyStep) {
    uint16_t* tiles = w.values + key / kKeyStep * w.d_tiles * kTile;
    for (int64_t d = 0; d < w.d_tiles * kSide; d += kSide) {
      Words rows[kSide];
      for (int64_t i = 0; i < kSide; ++i) {
        const auto load_key = [&](int64_t k) {
          return k < task.num_keys() ? load_wide(head_row(args.v, task.begin + k, task.head * head_dim), d, head_dim) : Words{};
        };
        rows[i] = load_key(key + 2 * i) | load_key(key + 2 * i + 1) << 16;
      }
      transpose(rows);
      std::memcpy(tiles + d * kKeyStep, rows, sizeof(rows));
    }
    for (int64_t k = 0; k < kKeyStep; ++k) tiles[head_dim * kKeyStep + k] = key + k < task.num_keys() ? kOne : uint16_t{0};
  }
}

/// Rows [first, first + count) of the head, transposed in words of two columns; rows behind the last are zeros.
void load_queries(const SegmentAttentionArgs& args, int64_t first_col, int64_t head_dim, int64_t first, int64_t count,
                  const Workspace& w) {
  for (int64_t half = 0; half < kRows; half += kSide) {
    for (int64_t t = 0; t < w.k_tiles; ++t) {
      Words rows[kSide];
      for (int64_t r = 0; r < kSide; ++r) {
        const uint32_t mask = half + r < count ? mask_from(t * kPairCols, head_dim) : 0U;
        const uint16_t* from = mask == 0 ? nullptr : head_row(args.q, first + half + r, first_col) + t * kPairCols;
        rows[r] = reinterpret_cast<Words>(_mm512_maskz_loadu_epi16(mask, from));
      }
      transpose(rows);
      std::memcpy(w.queries + (2 * t + half / kSide) * kTile, rows, sizeof(rows));
    }
  }
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

/// The largest score of each of 16 rows, `so_far` included. Four running maxima hide the latency of each.
__m512 find_max(const float* scores, int64_t num_keys, __m512 so_far) {
  __m512 largest[4] = {so_far, so_far, so_far, so_far};
  int64_t j = 0;
  for (; j + 4 <= num_keys; j += 4) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) largest[i] = _mm512_maskz_max_ps(0xffff, _mm512_load_ps(scores + (j + i) * kRows), largest[i]);
  }
  for (; j < num_keys; ++j) largest[0] = _mm512_maskz_max_ps(0xffff, _mm512_load_ps(scores + j * kRows), largest[0]);
  const __m512 even = _mm512_maskz_max_ps(0xffff, largest[0], largest[2]);
  return _mm512_maskz_max_ps(0xffff, even, _mm512_maskz_max_ps(0xffff, largest[1], largest[3]));
}

/// Turns the scores of a block into weights, and updates maximum and alpha of 16 rows. Keys behind the last weigh nothing.
/// Returns whether any alpha is not one.
bool update_weights(const Workspace& w, int64_t half, int64_t num_keys, float scale) {
  const float* scores = w.scores + half * kSide;
  const __m512 old_max = _mm512_loadu_ps(w.row_max + half * kSide);
  const __m512 new_max = find_max(scores, num_keys, old_max);
  _mm512_storeu_ps(w.row_max + half * kSide, new_max);
  const __m512 factor = _mm512_set1_ps(scale), shift = new_max * factor;
  const auto weight_of = [&](int64_t j) __attribute__((always_inline)) {
    return exp2_and_half(_mm512_fmsub_ps(_mm512_load_ps(scores + j * kRows), factor, shift));
  };
  const auto place_of = [&](int64_t j) __attribute__((always_inline)) {
    return w.weights + (j / kKeyStep * 2 + half) * kTile + j % kKeyStep / 2 * kPairCols;
  };
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

void rescale_sums(const Workspace& w) {
  const __m512 low = _mm512_loadu_ps(w.row_alpha), high = _mm512_loadu_ps(w.row_alpha + kSide);
  for (int64_t d = 0; d < w.d_tiles * kSide; ++d) {
    float* sums = w.sums + d * kRows;
    _mm512_store_ps(sums, _mm512_load_ps(sums) * low);
    _mm512_store_ps(sums + kSide, _mm512_load_ps(sums + kSide) * high);
  }
}

/// Divides by the sum of the weights, which lies behind the head's last column, and transposes words of two columns.
void store_output(const SegmentAttentionArgs& args, int64_t first_col, int64_t head_dim, int64_t first, int64_t count,
                  const Workspace& w) {
  for (int64_t half = 0; half < count; half += kSide) {
    const __m512 row_sum = _mm512_load_ps(w.sums + head_dim * kRows + half);
    const auto load_col = [&](int64_t d) __attribute__((always_inline)) {
      const __m512 mean = d < head_dim ? _mm512_load_ps(w.sums + d * kRows + half) / row_sum : _mm512_setzero_ps();
      return reinterpret_cast<Words>(detail::round_bfloat16(reinterpret_cast<RegF32>(mean)) >> 16);
    };
    for (int64_t first_d = 0; first_d < head_dim; first_d += kPairCols) {
      Words rows[kSide];
      for (int64_t i = 0; i < kSide; ++i) rows[i] = load_col(first_d + 2 * i) | load_col(first_d + 2 * i + 1) << 16;
      transpose(rows);
      for (int64_t r = half; r < count && r < half + kSide; ++r) {
        bfloat16* out = row_of<bfloat16>(args.out, first + r) + first_col + first_d;
        _mm512_mask_storeu_epi16(out, mask_from(first_d, head_dim), reinterpret_cast<__m512i>(rows[r - half]));
      }
    }
  }
}

/// Rows [first, first + count) of the task, at most 32.
template <class Unit>
void attend(const SegmentAttentionArgs& args, const SegmentTask& task, int64_t first, int64_t count, const Workspace& w) {
  const int64_t head_dim = args.out.cols / args.num_heads, first_col = task.head * head_dim;
  const float scale = 1.44269504088896341f / __builtin_sqrtf(static_cast<float>(head_dim));
  load_queries(args, first_col, head_dim, first, count, w);
  for (int64_t r = 0; r < kRows; r += kSide) _mm512_storeu_ps(w.row_max + r, _mm512_set1_ps(-__builtin_inff()));
  std::memset(w.sums, 0, static_cast<std::size_t>(w.d_tiles * kSide * kRows) * sizeof(float));
  for (int64_t key = 0; key < task.num_keys(); key += Unit::kKeyBlock) {
    const int64_t num_keys = task.num_keys() - key < Unit::kKeyBlock ? task.num_keys() - key : Unit::kKeyBlock;
    const int64_t first_step = key / kKeyStep, num_steps = (num_keys + kKeyStep - 1) / kKeyStep;
    Unit::multiply_keys(w, first_step, num_steps);
    const bool low = update_weights(w, 0, num_keys, scale), high = update_weights(w, 1, num_keys, scale);
    if (low || high) rescale_sums(w);
    Unit::multiply_values(w, first_step, num_steps);
  }
  store_output(args, first_col, head_dim, first, count, w);
}

template <class Unit>
void run_segment_attention(ThreadPool& pool, const SegmentAttentionArgs& args) {
  check_segments(args);
  const int64_t head_dim = args.out.cols / args.num_heads;
  FERRY_CHECK_LE(head_dim, kMaxHeadDim);
  int64_t task_rows = (args.out.rows + kRows - 1) / kRows * kRows;
  while (task_rows > 4 * kRows && count_segment_tasks(args, task_rows) < 8 * pool.num_threads()) {
    task_rows = (task_rows / 2 + kRows - 1) / kRows * kRows;
  }
  pool.parallel_for(count_segment_tasks(args, task_rows), [&](int64_t task_idx, int) {
    const SegmentTask task = find_segment_task(args, task_rows, task_idx);
    [[maybe_unused]] const Unit unit{};
    const Workspace w(head_dim, task.num_keys(), Unit::kKeyBlock);
    load_keys(args, task, head_dim, w);
    load_values(args, task, head_dim, w);
    for (int64_t r = 0; r < task.num_rows; r += kRows) {
      attend<Unit>(args, task, task.first_row + r, task.num_rows - r < kRows ? task.num_rows - r : kRows, w);
    }
  });
}

/// bf16, and heads of up to kMaxHeadDim columns.
bool takes_segment_attention(const SegmentAttentionArgs& args) {
  return args.q.dtype == DType::kBF16 && args.out.cols <= kMaxHeadDim * args.num_heads;
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
