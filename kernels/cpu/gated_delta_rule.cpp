#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/denormals.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile_matmul.h"
#include "runtime/base/check.h"

// The gated delta rule (arXiv 2412.06464). A task is one value head of one sequence; it walks over the sequence's tokens in
// order.
//
// Chunk form, for the tokens r, s = 0 ‥ C-1 of a piece, with G_r the sum of the decays up to and including r and S the state
// before:
//   A_rs = beta_r (k_r . k_s) e^(G_r - G_s)  for r > s        M_rs = (q_r . k_s) e^(G_r - G_s)  for r >= s
//   (I + A) N = diag(beta) (V - diag(e^G) K S)                forward substitution, top row first
//   O = diag(e^G) Q S + M N                                   S <- e^(G_last) S + sum_s e^(G_last - G_s) k_s N_s^T
// N holds the corrections that the recurrence calls delta. Differences of G are formed before exp: they are never positive.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kMaxChunk = 64;
constexpr int64_t kRowBlock = 8;  // rows that are solved or multiplied together; divides 16
constexpr float kNormEps = 1e-6f;

/// Working memory of a task. Strides: k_stride for rows of keys, v_stride for rows of values and of the state.
struct Workspace {
  int64_t k_stride;   // k_dim rounded up to 16
  int64_t v_stride;   // v_dim rounded up to 16
  float* q;           // [kMaxChunk, k_stride] normalised and scaled
  float* k;           // [kMaxChunk, k_stride] normalised
  float* k_columns;   // [k_dim, kMaxChunk] k transposed, zeros behind the last token
  float* n;           // [kMaxChunk, v_stride]
  float* out;         // [kMaxChunk, v_stride]
  float* a;           // [kMaxChunk, kMaxChunk] -A
  float* m;           // [kMaxChunk, kMaxChunk]
  float* decay_sum;   // [kMaxChunk] G, the last one repeated
  float* decay;       // [kMaxChunk] e^G
  float* decay_left;  // [kMaxChunk] e^(G_last - G)
  float* state;       // [k_dim, v_stride] a copy, used where v_dim is not a multiple of 16
  float* draft;       // [k_dim, v_stride] the state behind held rows
};

Workspace make_workspace(int64_t k_dim, int64_t v_dim) {
  Workspace w;
  w.k_stride = round_up_16(k_dim);
  w.v_stride = round_up_16(v_dim);
  const int64_t size = kMaxChunk * (3 * w.k_stride + 2 * w.v_stride + 2 * kMaxChunk + 3) + 2 * w.k_stride * w.v_stride;
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
  w.decay_sum = take(kMaxChunk);
  w.decay = take(kMaxChunk);
  w.decay_left = take(kMaxChunk);
  w.state = take(w.k_stride * w.v_stride);
  w.draft = take(w.k_stride * w.v_stride);
  return w;
}

/// One value head of one sequence.
struct HeadTask {
  const GatedDeltaRuleArgs& args;
  SequenceSpan sequence;
  int64_t v_head;
  float* state;  // [k_dim, v_stride]

  int64_t q_column() const { return v_head / (args.num_v_heads / args.num_k_heads) * args.k_dim; }
  int64_t k_column() const { return args.num_k_heads * args.k_dim + q_column(); }
  int64_t v_column() const { return 2 * args.num_k_heads * args.k_dim + v_head * args.v_dim; }
  float decay(int64_t row) const { return args.decay.raw()[row * args.num_v_heads + v_head]; }
  float beta(int64_t row) const { return args.beta.raw()[row * args.num_v_heads + v_head]; }
};

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

/// to = scale * x / sqrt(sum x^2 + eps), filled up with zeros to a multiple of 16.
template <class T>
void normalize_row(const T* x, int64_t count, float scale, float* to) {
  F32x16 squares(0.0f);
  for (int64_t i = 0; i < count; i += kLanes) {
    const F32x16 v = load_row(x, i, count);
    squares = fma(v, v, squares);
    store(to + i, v);
  }
  const F32x16 factor(scale / __builtin_sqrtf(horizontal_sum(squares) + kNormEps));
  for (int64_t i = 0; i < count; i += kLanes) store(to + i, load(to + i) * factor);
}

float query_scale(int64_t k_dim) { return 1.0f / __builtin_sqrtf(static_cast<float>(k_dim)); }

float exp_of(float x) {
  float lanes[kLanes];
  store(lanes, exp(F32x16(x)));
  return lanes[0];
}

/// A row of one value head on its way through the recurrence.
template <class T>
struct TokenRow {
  const T* qkv;
  float decay;  // as stored, before exp
  float beta;
  T* out;             // [v_dim]; null if nobody wants it
  const float* from;  // [k_dim, v_stride] the state before
  float* to;          // [k_dim, v_stride] the state after it, may be `from`; null if nobody wants it
};

/// The recurrence for kVectors vectors of value columns from `col`: S <- decay S + k delta^T, delta = beta (v - decay S^T k),
/// o = S^T q.
template <class T, int kVectors, bool kKeeps>
void step_columns(const Workspace& w, const GatedDeltaRuleArgs& args, const T* v, float decay, const TokenRow<T>& row,
                  int64_t col) {
  const float* state = row.from + col;
  F32x16 sums[kVectors];
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) sums[c] = F32x16(0.0f);
  for (int64_t i = 0; i < args.k_dim; ++i) {
    const F32x16 key(w.k[i]);
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) sums[c] = fma(load(state + i * w.v_stride + c * kLanes), key, sums[c]);
  }
  F32x16 delta[kVectors];
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) {
    delta[c] = rounded<float>((load_row(v, col + c * kLanes, args.v_dim) - rounded<float>(sums[c] * decay)) * row.beta);
    sums[c] = F32x16(0.0f);
  }
  for (int64_t i = 0; i < args.k_dim; ++i) {
    const F32x16 key(w.k[i]);
    const F32x16 query(w.q[i]);
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      const int64_t element = i * w.v_stride + c * kLanes;
      const F32x16 updated = fma(key, delta[c], rounded<float>(load(state + element) * decay));
      if constexpr (kKeeps) store(row.to + col + element, updated);
      sums[c] = fma(updated, query, sums[c]);
    }
  }
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) store(w.out + col + c * kLanes, sums[c]);
}

template <class T, bool kKeeps>
void step_all_columns(const Workspace& w, const GatedDeltaRuleArgs& args, const T* v, float decay, const TokenRow<T>& row) {
  constexpr int kWide = kParts == 1 ? 8 : 4;  // vectors of the state's rows that fit the registers beside their sums
  int64_t col = 0;
  for (; col + kWide * kLanes <= w.v_stride; col += kWide * kLanes) step_columns<T, kWide, kKeeps>(w, args, v, decay, row, col);
  for (; col < w.v_stride; col += kLanes) step_columns<T, 1, kKeeps>(w, args, v, decay, row, col);
}

/// One token by the recurrence: two passes over the state.
template <class T>
void run_token(const HeadTask& task, const Workspace& w, const TokenRow<T>& row) {
  const GatedDeltaRuleArgs& args = task.args;
  normalize_row(row.qkv + task.q_column(), args.k_dim, query_scale(args.k_dim), w.q);
  normalize_row(row.qkv + task.k_column(), args.k_dim, 1.0f, w.k);
  const T* v = row.qkv + task.v_column();
  const float decay = exp_of(row.decay);
  if (row.to != nullptr) {
    step_all_columns<T, true>(w, args, v, decay, row);
  } else {
    step_all_columns<T, false>(w, args, v, decay, row);
  }
  if (row.out == nullptr) return;
  for (int64_t i = 0; i < args.v_dim; i += kLanes) store_row(row.out, i, args.v_dim, load(w.out + i));
}

/// The rows that are replayed, then the span's, one by one. Held ones leave the state alone: the first of them puts what it
/// makes of it into w.draft, and the last one nowhere.
template <class T>
void run_tokens(const HeadTask& task, const Workspace& w, const HeldDeltaRows* held) {
  const GatedDeltaRuleArgs& args = task.args;
  const SequenceSpan& span = task.sequence;
  for (int64_t i = 0; i < span.num_replayed; ++i) {
    const int64_t gate = i * args.num_v_heads + task.v_head;
    run_token<T>(task, w,
                 {.qkv = reinterpret_cast<const T*>(held->qkv.raw()) + i * args.qkv.cols,
                  .decay = held->decay.raw()[gate],
                  .beta = held->beta.raw()[gate],
                  .out = nullptr,
                  .from = task.state,
                  .to = task.state});
  }
  for (int64_t i = 0; i < span.num_tokens; ++i) {
    const int64_t row = span.first_row + i, held_idx = i - span.num_taken();
    float* after = held_idx < 0 ? task.state : w.draft;
    run_token<T>(task, w,
                 {.qkv = row_of<T>(args.qkv, row),
                  .decay = task.decay(row),
                  .beta = task.beta(row),
                  .out = row_of<T>(args.out, row) + task.v_head * args.v_dim,
                  .from = held_idx <= 0 ? task.state : w.draft,
                  .to = held_idx >= 0 && i + 1 == span.num_tokens ? nullptr : after});
  }
}

/// Fills q, k, k_columns and the decays for `count` tokens from `row`.
template <class T>
void load_chunk(const HeadTask& task, const Workspace& w, int64_t row, int64_t count) {
  const GatedDeltaRuleArgs& args = task.args;
  const int64_t lanes = round_up_16(count);
  float decay_sum = 0.0f;
  for (int64_t r = 0; r < count; ++r) {
    const T* qkv = row_of<T>(args.qkv, row + r);
    float* k = w.k + r * w.k_stride;
    normalize_row(qkv + task.q_column(), args.k_dim, query_scale(args.k_dim), w.q + r * w.k_stride);
    normalize_row(qkv + task.k_column(), args.k_dim, 1.0f, k);
    for (int64_t i = 0; i < args.k_dim; ++i) w.k_columns[i * kMaxChunk + r] = k[i];
    decay_sum += task.decay(row + r);
    w.decay_sum[r] = decay_sum;
  }
  for (int64_t r = count; r < lanes; ++r) {
    for (int64_t i = 0; i < args.k_dim; ++i) w.k_columns[i * kMaxChunk + r] = 0.0f;
    w.decay_sum[r] = decay_sum;
  }
  for (int64_t r = 0; r < lanes; r += kLanes) {
    const F32x16 sums = load(w.decay_sum + r);
    store(w.decay + r, exp(sums));
    store(w.decay_left + r, exp(F32x16(decay_sum) - sums));
  }
}

/// The triangles -A and M; entries above the diagonal are zero within the vector of the diagonal and not written behind it.
void make_triangles(const HeadTask& task, const Workspace& w, int64_t row, int64_t count) {
  for (int64_t first = 0; first < count; first += kRowBlock) {
    const int64_t rows = count - first < kRowBlock ? count - first : kRowBlock;
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
      const F32x16 difference = F32x16(w.decay_sum[r]) - load(w.decay_sum + s);
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

/// N from (I + A) N = diag(beta) (V - diag(e^G) K S): blocks of rows, the rows above by one product, the rest one by one.
template <class T>
void solve_corrections(const HeadTask& task, const Workspace& w, int64_t row, int64_t count) {
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
    const F32x16 decay(w.decay[r]);
    const F32x16 beta(task.beta(row + r));
    for (int64_t i = 0; i < args.v_dim; i += kLanes) {
      store(n + i, (load_row(v, i, args.v_dim) - rounded<float>(load(n + i) * decay)) * beta);
    }
  }
  for (int64_t first = 0; first < count; first += kRowBlock) {
    const int64_t rows = count - first < kRowBlock ? count - first : kRowBlock;
    tile_matmul({.a = w.a + first * kMaxChunk,
                 .a_row_stride = kMaxChunk,
                 .a_k_stride = 1,
                 .b = w.n,
                 .b_stride = w.v_stride,
                 .c = w.n + first * w.v_stride,
                 .c_stride = w.v_stride,
                 .m = rows,
                 .n = w.v_stride,
                 .k = first,
                 .c_scale = 1.0f});
    for (int64_t r = first + 1; r < first + rows; ++r) {
      for (int64_t i = 0; i < w.v_stride; i += kLanes) {
        F32x16 sum = load(w.n + r * w.v_stride + i);
        for (int64_t s = first; s < r; ++s) sum = fma(w.a[r * kMaxChunk + s], load(w.n + s * w.v_stride + i), sum);
        store(w.n + r * w.v_stride + i, sum);
      }
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
void run_chunk(const HeadTask& task, const Workspace& w, int64_t row, int64_t count) {
  const GatedDeltaRuleArgs& args = task.args;
  load_chunk<T>(task, w, row, count);
  make_triangles(task, w, row, count);
  solve_corrections<T>(task, w, row, count);

  scale_rows(w.q, count, w.k_stride, w.decay);
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
  for (int64_t first = 0; first < count; first += kRowBlock) {
    const int64_t rows = count - first < kRowBlock ? count - first : kRowBlock;
    tile_matmul({.a = w.m + first * kMaxChunk,
                 .a_row_stride = kMaxChunk,
                 .a_k_stride = 1,
                 .b = w.n,
                 .b_stride = w.v_stride,
                 .c = w.out + first * w.v_stride,
                 .c_stride = w.v_stride,
                 .m = rows,
                 .n = w.v_stride,
                 .k = first + rows,
                 .c_scale = 1.0f});
  }
  for (int64_t r = 0; r < count; ++r) {
    T* out = row_of<T>(args.out, row + r) + task.v_head * args.v_dim;
    for (int64_t i = 0; i < args.v_dim; i += kLanes) store_row(out, i, args.v_dim, load(w.out + r * w.v_stride + i));
  }

  scale_rows(w.k, count, w.k_stride, w.decay_left);
  const float whole_decay = w.decay[count - 1];
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
               .c_scale = whole_decay});
}

template <class T>
void run_head(const GatedDeltaRuleArgs& args, std::size_t sequence_idx, int64_t v_head) {
  const Workspace w = make_workspace(args.k_dim, args.v_dim);
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
    run_tokens<T>(task, w, sequence.num_replayed > 0 ? &args.held[sequence_idx] : nullptr);
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
