#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/cpu/delta_head.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile_matmul.h"

// The chunk form of the gated delta rule (arXiv 2412.06464). For the tokens r, s = 0 ‥ C-1 of a piece, with G_r the sum of the
// decays up to and including r and S the state before:
//
//   A_rs = beta_r (k_r . k_s) e^(G_r - G_s)  for r > s        M_rs = (q_r . k_s) e^(G_r - G_s)  for r >= s
//   (I + A) N = diag(beta) (V - diag(e^G) K S)                forward substitution, top row first
//   O = diag(e^G) Q S + M N                                   S <- e^(G_last) S + sum_s e^(G_last - G_s) k_s N_s^T
//
// N holds the corrections that the recurrence calls delta. Differences of G are formed before exp: they are never positive.
// Here is what does not depend on how the products with keys are computed.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kRowBlock = 8;  // rows that are solved or multiplied together; divides 16

/// The decays of a piece, one a token, up to the next multiple of 16.
struct ChunkDecays {
  float sums[kMaxChunk];  // G, the last one repeated
  float now[kMaxChunk];   // e^G
  float left[kMaxChunk];  // e^(G_last - G)
};

inline void sum_decays(const HeadTask& task, int64_t row, int64_t count, ChunkDecays& decays) {
  const int64_t lanes = round_up_16(count);
  float sum = 0.0f;
  for (int64_t r = 0; r < lanes; ++r) {
    if (r < count) sum += task.decay(row + r);
    decays.sums[r] = sum;
  }
  for (int64_t r = 0; r < lanes; r += kLanes) {
    const F32x16 sums = load(decays.sums + r);
    store(decays.now + r, exp(sums));
    store(decays.left + r, exp(F32x16(sum) - sums));
  }
}

inline int64_t rows_of_block(int64_t first, int64_t count) { return count - first < kRowBlock ? count - first : kRowBlock; }

/// Rows [first, first + rows) of a triangle, of which the first k columns count.
struct TriangleRows {
  int64_t first, rows, k;
};

/// to += triangle n, of these rows. `triangle` [count, kMaxChunk], `n` and `to` [count, v_stride].
inline void add_row_block(const float* triangle, const float* n, float* to, const TriangleRows& block, int64_t v_stride) {
  tile_matmul({.a = triangle + block.first * kMaxChunk,
               .a_row_stride = kMaxChunk,
               .a_k_stride = 1,
               .b = n,
               .b_stride = v_stride,
               .c = to + block.first * v_stride,
               .c_stride = v_stride,
               .m = block.rows,
               .n = v_stride,
               .k = block.k,
               .c_scale = 1.0f});
}

/// N from (I + A) N = `n` in place: blocks of rows, the rows above by one product, the rest one by one. `a` [count, kMaxChunk]
/// is -A, `n` [count, v_stride].
inline void solve_triangle(const float* a, float* n, int64_t count, int64_t v_stride) {
  for (int64_t first = 0; first < count; first += kRowBlock) {
    const int64_t rows = rows_of_block(first, count);
    add_row_block(a, n, n, {.first = first, .rows = rows, .k = first}, v_stride);
    for (int64_t r = first + 1; r < first + rows; ++r) {
      for (int64_t i = 0; i < v_stride; i += kLanes) {
        F32x16 sum = load(n + r * v_stride + i);
        for (int64_t s = first; s < r; ++s) sum = fma(a[r * kMaxChunk + s], load(n + s * v_stride + i), sum);
        store(n + r * v_stride + i, sum);
      }
    }
  }
}

/// out += M N, where `m` [count, kMaxChunk] has zeros above the diagonal.
inline void add_triangle_product(const float* m, const float* n, float* out, int64_t count, int64_t v_stride) {
  for (int64_t first = 0; first < count; first += kRowBlock) {
    const int64_t rows = rows_of_block(first, count);
    add_row_block(m, n, out, {.first = first, .rows = rows, .k = first + rows}, v_stride);
  }
}

/// Asks for a head's values of a piece, and for the place of its outputs.
template <class T>
inline void prefetch_values(const HeadTask& task, int64_t row, int64_t count) {
  const int64_t bytes = static_cast<int64_t>(sizeof(T)), width = task.args.v_dim * bytes;
  const ConstMatrixView& qkv = task.args.qkv;
  const MatrixView& out = task.args.out;
  prefetch_rows(reinterpret_cast<const std::byte*>(row_of<T>(qkv, row) + task.v_column()), qkv.row_stride * bytes, width,
                count);
  prefetch_rows(reinterpret_cast<const std::byte*>(row_of<T>(out, row) + task.v_head * task.args.v_dim), out.row_stride * bytes,
                width, count);
}

/// Asks for the keys and queries of a task's key head.
template <class T>
inline void prefetch_keys(const HeadTask& task, int64_t row, int64_t count) {
  const int64_t bytes = static_cast<int64_t>(sizeof(T)), width = task.args.k_dim * bytes;
  const ConstMatrixView& qkv = task.args.qkv;
  for (const int64_t column : {task.q_column(), task.k_column()}) {
    prefetch_rows(reinterpret_cast<const std::byte*>(row_of<T>(qkv, row) + column), qkv.row_stride * bytes, width, count);
  }
}

/// The columns of a task's head in the rows of the batch from `row` on.
template <class T>
inline void store_outputs(const HeadTask& task, const float* out, int64_t row, int64_t count, int64_t v_stride) {
  for (int64_t r = 0; r < count; ++r) {
    T* to = row_of<T>(task.args.out, row + r) + task.v_head * task.args.v_dim;
    for (int64_t i = 0; i < task.args.v_dim; i += kLanes) store_row(to, i, task.args.v_dim, load(out + r * v_stride + i));
  }
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
