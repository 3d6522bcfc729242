#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/delta_chunk.h"
#include "kernels/cpu/delta_recurrence.h"
#include "kernels/cpu/denormals.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile_matmul.h"

// The gated delta rule in fp32, for every shape. A task is one value head of one sequence; it walks over the sequence's tokens
// in order, row by row or by chunks.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// Working memory of a task. Strides: k_stride for rows of keys, v_stride for rows of values and of the state.
struct ChunkMemory {
  int64_t k_stride;  // k_dim rounded up to 16
  int64_t v_stride;  // v_dim rounded up to 16
  float* q;          // [kMaxChunk, k_stride] normalised and scaled
  float* k;          // [kMaxChunk, k_stride] normalised
  float* k_columns;  // [k_dim, kMaxChunk] k transposed, zeros behind the last token
  float* n;          // [kMaxChunk, v_stride]
  float* out;        // [kMaxChunk, v_stride]
  float* a;          // [kMaxChunk, kMaxChunk] -A
  float* m;          // [kMaxChunk, kMaxChunk]
  float* state;      // [k_dim, v_stride] a copy, used where v_dim is not a multiple of 16
  RecurrenceSpace recurrence;
};

ChunkMemory make_chunk_memory(int64_t k_dim, int64_t v_dim) {
  ChunkMemory w;
  w.k_stride = round_up_16(k_dim);
  w.v_stride = round_up_16(v_dim);
  const int64_t size = kMaxChunk * (3 * w.k_stride + 2 * w.v_stride + 2 * kMaxChunk) + w.k_stride * w.v_stride +
                       recurrence_floats(w.k_stride, w.v_stride);
  float* next = thread_scratch(size);
  const auto take = [&next](int64_t count) {
    float* piece = next;
    next += count;
    return piece;
  };
  w.q = take(kMaxChunk * w.k_stride);
  w.k = take(kMaxChunk * w.k_stride);
  w.k_columns = take(w.k_stride * kMaxChunk);
  w.n = take(kMaxChunk * w.v_stride);
  w.out = take(kMaxChunk * w.v_stride);
  w.a = take(kMaxChunk * kMaxChunk);
  w.m = take(kMaxChunk * kMaxChunk);
  w.state = take(w.k_stride * w.v_stride);
  w.recurrence = make_recurrence(w.k_stride, w.v_stride, take(recurrence_floats(w.k_stride, w.v_stride)));
  return w;
}

/// Fills q, k and k_columns for `count` tokens from `row`.
template <class T>
void load_chunk(const HeadTask& task, const ChunkMemory& w, int64_t row, int64_t count) {
  const GatedDeltaRuleArgs& args = task.args;
  for (int64_t r = 0; r < count; ++r) {
    const T* qkv = row_of<T>(args.qkv, row + r);
    float* k = w.k + r * w.k_stride;
    normalize_row(qkv + task.q_column(), args.k_dim, query_length(args.k_dim), w.q + r * w.k_stride);
    normalize_row(qkv + task.k_column(), args.k_dim, 1.0f, k);
    for (int64_t i = 0; i < args.k_dim; ++i) w.k_columns[i * kMaxChunk + r] = k[i];
  }
  for (int64_t r = count; r < round_up_16(count); ++r) {
    for (int64_t i = 0; i < args.k_dim; ++i) w.k_columns[i * kMaxChunk + r] = 0.0f;
  }
}

/// The triangles -A and M; entries above the diagonal are zero within the vector of the diagonal and not written behind it.
void make_triangles(const HeadTask& task, const ChunkMemory& w, const ChunkDecays& decays, int64_t row, int64_t count) {
  for (int64_t first = 0; first < count; first += kRowBlock) {
    const int64_t rows = rows_of_block(first, count);
    TileProduct product{.a = w.k + first * w.k_stride,
                        .a_row_stride = w.k_stride,
                        .a_k_stride = 1,
                        .b = w.k_columns,
                        .b_stride = kMaxChunk,
                        .c = w.a + first * kMaxChunk,
                        .c_stride = kMaxChunk,
                        .m = rows,
                        .n = round_up_16(first + rows),
                        .k = task.args.k_dim,
                        .c_scale = 0.0f};
    tile_matmul(product);
    product.a = w.q + first * w.k_stride;
    product.c = w.m + first * kMaxChunk;
    tile_matmul(product);
  }
  float iota[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) iota[i] = static_cast<float>(i);
  for (int64_t r = 0; r < count; ++r) {
    const F32x16 beta(-task.beta(row + r));
    for (int64_t s = 0; s <= r; s += kLanes) {
      const F32x16 difference = F32x16(decays.sums[r]) - load(decays.sums + s);
      const F32x16 factor = exp(min(difference, F32x16(0.0f)));
      const F32x16 column = load(iota) + F32x16(static_cast<float>(s));
      const F32x16 diagonal(static_cast<float>(r));
      float* a = w.a + r * kMaxChunk + s;
      float* m = w.m + r * kMaxChunk + s;
      store(a, select(diagonal > column, rounded<float>(load(a) * factor) * beta, 0.0f));
      store(m, select(column > diagonal, 0.0f, load(m) * factor));
    }
  }
}

/// diag(beta) (V - diag(e^G) K S) into n.
template <class T>
void make_right_side(const HeadTask& task, const ChunkMemory& w, const ChunkDecays& decays, int64_t row, int64_t count) {
  const GatedDeltaRuleArgs& args = task.args;
  tile_matmul({.a = w.k,
               .a_row_stride = w.k_stride,
               .a_k_stride = 1,
               .b = task.state,
               .b_stride = w.v_stride,
               .c = w.n,
               .c_stride = w.v_stride,
               .m = count,
               .n = w.v_stride,
               .k = args.k_dim,
               .c_scale = 0.0f});
  for (int64_t r = 0; r < count; ++r) {
    const T* v = row_of<T>(args.qkv, row + r) + task.v_column();
    float* n = w.n + r * w.v_stride;
    const F32x16 decay(decays.now[r]);
    const F32x16 beta(task.beta(row + r));
    for (int64_t i = 0; i < args.v_dim; i += kLanes) {
      store(n + i, (load_row(v, i, args.v_dim) - rounded<float>(load(n + i) * decay)) * beta);
    }
  }
}

void scale_rows(float* rows, int64_t count, int64_t stride, const float* factors) {
  for (int64_t r = 0; r < count; ++r) {
    const F32x16 factor(factors[r]);
    for (int64_t i = 0; i < stride; i += kLanes) store(rows + r * stride + i, load(rows + r * stride + i) * factor);
  }
}

/// `count` <= args.chunk tokens by the chunk form.
template <class T>
void run_chunk(const HeadTask& task, const ChunkMemory& w, int64_t row, int64_t count) {
  const GatedDeltaRuleArgs& args = task.args;
  ChunkDecays decays;
  prefetch_values<T>(task, row, count);
  sum_decays(task, row, count, decays);
  load_chunk<T>(task, w, row, count);
  make_triangles(task, w, decays, row, count);
  make_right_side<T>(task, w, decays, row, count);
  solve_triangle(w.a, w.n, count, w.v_stride);

  scale_rows(w.q, count, w.k_stride, decays.now);
  tile_matmul({.a = w.q,
               .a_row_stride = w.k_stride,
               .a_k_stride = 1,
               .b = task.state,
               .b_stride = w.v_stride,
               .c = w.out,
               .c_stride = w.v_stride,
               .m = count,
               .n = w.v_stride,
               .k = args.k_dim,
               .c_scale = 0.0f});
  add_triangle_product(w.m, w.n, w.out, count, w.v_stride);
  store_outputs<T>(task, w.out, row, count, w.v_stride);

  scale_rows(w.k, count, w.k_stride, decays.left);
  tile_matmul({.a = w.k,
               .a_row_stride = 1,
               .a_k_stride = w.k_stride,
               .b = w.n,
               .b_stride = w.v_stride,
               .c = task.state,
               .c_stride = w.v_stride,
               .m = args.k_dim,
               .n = w.v_stride,
               .k = count,
               .c_scale = decays.now[count - 1]});
}

template <class T>
void run_head(const GatedDeltaRuleArgs& args, std::size_t sequence_idx, int64_t v_head) {
  const ChunkMemory w = make_chunk_memory(args.k_dim, args.v_dim);
  float* stored = args.states[sequence_idx] + v_head * args.k_dim * args.v_dim;
  const bool is_padded = w.v_stride != args.v_dim;
  const HeadTask task{args, args.sequences[sequence_idx], v_head, is_padded ? w.state : stored};
  if (is_padded) {
    for (int64_t i = 0; i < args.k_dim; ++i) {
      for (int64_t j = 0; j < args.v_dim; j += kLanes) {
        store(w.state + i * w.v_stride + j, load_row(stored + i * args.v_dim, j, args.v_dim));
      }
    }
  }
  const SequenceSpan& sequence = task.sequence;
  if (sequence.form == DeltaForm::kRecurrent) {
    run_tokens<T>(task, w.recurrence, sequence.num_replayed > 0 ? &args.held[sequence_idx] : nullptr, task.state);
  } else {
    for (int64_t t = 0; t < sequence.num_tokens; t += args.chunk) {
      const int64_t count = sequence.num_tokens - t < args.chunk ? sequence.num_tokens - t : args.chunk;
      run_chunk<T>(task, w, sequence.first_row + t, count);
    }
  }
  if (is_padded) {
    for (int64_t i = 0; i < args.k_dim; ++i) {
      for (int64_t j = 0; j < args.v_dim; j += kLanes) {
        store_row(stored + i * args.v_dim, j, args.v_dim, load(w.state + i * w.v_stride + j));
      }
    }
  }
}

}  // namespace

void gated_delta_rule(ThreadPool& pool, const GatedDeltaRuleArgs& args) {
  check_delta_rule(args);
  const int64_t num_tasks = static_cast<int64_t>(args.sequences.size()) * args.num_v_heads;
  pool.parallel_for(num_tasks, [&](int64_t task_idx, int) {
    const std::size_t sequence_idx = static_cast<std::size_t>(task_idx / args.num_v_heads);
    const int64_t v_head = task_idx % args.num_v_heads;
    const DenormalsAsZeros denormals_as_zeros;
    if (args.qkv.dtype == DType::kF32) {
      run_head<float>(args, sequence_idx, v_head);
    } else {
      run_head<bfloat16>(args, sequence_idx, v_head);
    }
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
