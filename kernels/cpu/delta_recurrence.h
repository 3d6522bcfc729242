#pragma once

#include <cstdint>

#include "kernels/cpu/delta_head.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"

// The recurrent form of the gated delta rule: row by row, two passes over the state.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// Working memory of a head's recurrence.
struct RecurrenceSpace {
  int64_t v_stride;  // v_dim rounded up to 16
  float* q;          // [k_dim rounded up to 16] normalised and scaled
  float* k;          // likewise, normalised
  float* out;        // [v_stride]
  float* draft;      // [k_dim, v_stride] the state behind held rows
};

inline float exp_of(float x) {
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
void step_columns(const RecurrenceSpace& w, const GatedDeltaRuleArgs& args, const T* v, float decay, const TokenRow<T>& row,
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
void step_all_columns(const RecurrenceSpace& w, const GatedDeltaRuleArgs& args, const T* v, float decay,
                      const TokenRow<T>& row) {
  constexpr int kWide = kParts == 1 ? 8 : 4;  // vectors of the state's rows that fit the registers beside their sums
  int64_t col = 0;
  for (; col + kWide * kLanes <= w.v_stride; col += kWide * kLanes) step_columns<T, kWide, kKeeps>(w, args, v, decay, row, col);
  for (; col < w.v_stride; col += kLanes) step_columns<T, 1, kKeeps>(w, args, v, decay, row, col);
}

/// One token by the recurrence: two passes over the state.
template <class T>
void run_token(const HeadTask& task, const RecurrenceSpace& w, const TokenRow<T>& row) {
  const GatedDeltaRuleArgs& args = task.args;
  normalize_row(row.qkv + task.q_column(), args.k_dim, query_length(args.k_dim), w.q);
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
void run_tokens(const HeadTask& task, const RecurrenceSpace& w, const HeldDeltaRows* held) {
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

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
