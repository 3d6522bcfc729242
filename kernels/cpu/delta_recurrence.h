#pragma once

#include <cstdint>

#include "kernels/cpu/delta_head.h"
#include "kernels/cpu/simd.h"

// The recurrent form of the gated delta rule: row by row, and for n rows n + 1 passes over the state. A first one computes
// S^T k of the first row; then each row's pass reads S once, writes it once, and computes both S^T q and S^T k of the next row.
// A value column takes the same arithmetic in whichever company, so a row has the same bits alone and among others.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kRowsAtOnce = 8;

/// Working memory of a head's recurrence.
struct RecurrenceSpace {
  int64_t k_stride;  // k_dim rounded up to 16
  int64_t v_stride;  // v_dim rounded up to 16
  float* q;          // [kRowsAtOnce, k_stride] normalised and scaled
  float* k;          // likewise, normalised
  float* v;          // [kRowsAtOnce, v_stride]
  float* out;        // likewise
  float* draft;      // [k_dim, v_stride] the state behind held rows
};

/// What a RecurrenceSpace without its strides takes.
inline int64_t recurrence_floats(int64_t k_stride, int64_t v_stride) {
  return 2 * kRowsAtOnce * (k_stride + v_stride) + k_stride * v_stride;
}
inline RecurrenceSpace make_recurrence(int64_t k_stride, int64_t v_stride, float* memory) {
  RecurrenceSpace w{.k_stride = k_stride, .v_stride = v_stride, .q = memory};
  w.k = w.q + kRowsAtOnce * k_stride;
  w.v = w.k + kRowsAtOnce * k_stride;
  w.out = w.v + kRowsAtOnce * v_stride;
  w.draft = w.out + kRowsAtOnce * v_stride;
  return w;
}

/// A row of one value head on its way through the recurrence.
struct RecurrentRow {
  const float* q;
  const float* k;
  const float* v;
  float* out;
  float decay;  // e^decay
  float beta;
  const float* from;  // [k_dim, v_stride] the state before
  float* to;          // [k_dim, v_stride] the state after it, may be `from`; null if nobody wants it
};

/// One pass over kVectors vectors of value columns from `col`: S <- decay S + k delta^T, out = S^T q, and where a row follows
/// `predicted` = S^T k of that. Asks for the same columns of `ahead`, which is [k_dim, v_stride] too.
template <int kVectors, bool kKeeps, bool kHasNext>
[[gnu::always_inline]] inline void update_columns(const RecurrentRow& row, const float* next_k, int64_t k_dim, int64_t v_stride,
                                                  int64_t col, const float* ahead, const F32x16 (&delta)[kVectors],
                                                  F32x16 (&predicted)[kVectors]) {
  F32x16 sums[kVectors];
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) sums[c] = predicted[c] = F32x16(0.0f);
  for (int64_t i = 0; i < k_dim; ++i) {
    const F32x16 key(row.k[i]);
    const F32x16 query(row.q[i]);
    const F32x16 next_key(kHasNext ? next_k[i] : 0.0f);
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      const int64_t element = i * v_stride + col + c * kLanes;
      if constexpr (!kHasNext) __builtin_prefetch(ahead + element, 1, 2);
      const F32x16 updated = fma(key, delta[c], rounded<float>(load(row.from + element) * row.decay));
      if constexpr (kKeeps) store(row.to + element, updated);
      sums[c] = fma(updated, query, sums[c]);
      if constexpr (kHasNext) predicted[c] = fma(updated, next_key, predicted[c]);
    }
  }
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) store(row.out + col + c * kLanes, sums[c]);
}

/// The recurrence of `num_rows` rows for kVectors vectors of value columns from `col`: delta = beta (v - decay S^T k).
template <int kVectors>
void step_columns(const RecurrentRow* rows, int64_t num_rows, int64_t k_dim, int64_t v_stride, int64_t col,
                  const float* ahead) {
  F32x16 predicted[kVectors], delta[kVectors];
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) predicted[c] = F32x16(0.0f);
  for (int64_t i = 0; i < k_dim; ++i) {
    const F32x16 key(rows->k[i]);
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      predicted[c] = fma(load(rows->from + i * v_stride + col + c * kLanes), key, predicted[c]);
    }
  }
  for (int64_t r = 0; r < num_rows; ++r) {
    const RecurrentRow& row = rows[r];
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      const F32x16 value = load(row.v + col + c * kLanes);
      delta[c] = rounded<float>((value - rounded<float>(predicted[c] * row.decay)) * row.beta);
    }
    if (r + 1 < num_rows) {
      update_columns<kVectors, true, true>(row, rows[r + 1].k, k_dim, v_stride, col, ahead, delta, predicted);
    } else if (row.to != nullptr) {
      update_columns<kVectors, true, false>(row, nullptr, k_dim, v_stride, col, ahead, delta, predicted);
    } else {
      update_columns<kVectors, false, false>(row, nullptr, k_dim, v_stride, col, ahead, delta, predicted);
    }
  }
}

inline void step_rows(const RecurrentRow* rows, int64_t num_rows, int64_t k_dim, int64_t v_stride, const float* ahead) {
  constexpr int kWide = kParts == 1 ? 8 : 2;  // vectors of the state's rows that fit the registers beside their sums
  int64_t col = 0;
  for (; col + kWide * kLanes <= v_stride; col += kWide * kLanes) {
    step_columns<kWide>(rows, num_rows, k_dim, v_stride, col, ahead);
  }
  for (; col < v_stride; col += kLanes) step_columns<1>(rows, num_rows, k_dim, v_stride, col, ahead);
}

inline float exp_of(float x) {
  float lanes[kLanes];
  store(lanes, exp(F32x16(x)));
  return lanes[0];
}

/// A row as the batch and the last step's held rows have it.
template <class T>
struct SourceRow {
  const T* qkv;
  float decay;  // as stored, before exp
  float beta;
  T* out;  // [v_dim]; null if nobody wants it
};

/// Row `idx` of those that are replayed and the span's, which follow them.
template <class T>
SourceRow<T> find_row(const HeadTask& task, const HeldDeltaRows* held, int64_t idx) {
  const GatedDeltaRuleArgs& args = task.args;
  if (idx < task.sequence.num_replayed) {
    const int64_t gate = idx * args.num_v_heads + task.v_head;
    return {.qkv = reinterpret_cast<const T*>(held->qkv.raw()) + idx * args.qkv.cols,
            .decay = held->decay.raw()[gate],
            .beta = held->beta.raw()[gate],
            .out = nullptr};
  }
  const int64_t row = task.sequence.first_row + idx - task.sequence.num_replayed;
  return {.qkv = row_of<T>(args.qkv, row),
          .decay = task.decay(row),
          .beta = task.beta(row),
          .out = row_of<T>(args.out, row) + task.v_head * args.v_dim};
}

/// The rows that are replayed, then the span's. Held ones leave the state alone: the first of them puts what it makes of it
/// into w.draft, and the last one nowhere. `ahead` is the state that this thread takes next, or the task's.
template <class T>
void run_tokens(const HeadTask& task, const RecurrenceSpace& w, const HeldDeltaRows* held, const float* ahead) {
  const GatedDeltaRuleArgs& args = task.args;
  const int64_t num_rows = task.sequence.num_replayed + task.sequence.num_tokens, num_taken = num_rows - task.sequence.num_held;
  for (int64_t first = 0; first < num_rows; first += kRowsAtOnce) {
    const int64_t count = num_rows - first < kRowsAtOnce ? num_rows - first : kRowsAtOnce;
    RecurrentRow rows[kRowsAtOnce];
    for (int64_t r = 0; r < count; ++r) {
      const SourceRow<T> source = find_row<T>(task, held, first + r);
      float* q = w.q + r * w.k_stride;
      float* k = w.k + r * w.k_stride;
      float* v = w.v + r * w.v_stride;
      normalize_row(source.qkv + task.q_column(), args.k_dim, query_length(args.k_dim), q);
      normalize_row(source.qkv + task.k_column(), args.k_dim, 1.0f, k);
      for (int64_t j = 0; j < w.v_stride; j += kLanes) store(v + j, load_row(source.qkv + task.v_column(), j, args.v_dim));
      const int64_t held_idx = first + r - num_taken;
      float* after = held_idx < 0 ? task.state : w.draft;
      rows[r] = {.q = q,
                 .k = k,
                 .v = v,
                 .out = w.out + r * w.v_stride,
                 .decay = exp_of(source.decay),
                 .beta = source.beta,
                 .from = held_idx <= 0 ? task.state : w.draft,
                 .to = held_idx >= 0 && first + r + 1 == num_rows ? nullptr : after};
    }
    step_rows(rows, count, args.k_dim, w.v_stride, ahead);
    for (int64_t r = 0; r < count; ++r) {
      T* out = find_row<T>(task, held, first + r).out;
      if (out == nullptr) continue;
      for (int64_t j = 0; j < args.v_dim; j += kLanes) store_row(out, j, args.v_dim, load(w.out + r * w.v_stride + j));
    }
  }
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
