#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/delta_chunk.h"
#include "kernels/cpu/delta_recurrence.h"
#include "kernels/cpu/denormals.h"
#include "kernels/cpu/dot_bf16.h"
#include "kernels/cpu/pair_product.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/words.h"

// The gated delta rule where a unit multiplies bf16 (pair_product.h): the chunk form of delta_chunk.h for rows of bf16.
// Included only by files that are compiled for AVX-512 BF16, which processors with AMX have, too.
//
// Keys and queries are taken as they are stored, which is exact; what scales them to their lengths goes to the results, row by
// row and column by column. So K K^T and Q K^T are sums of exact products in fp32, and one copy serves all value heads of a key
// head. The state stays fp32; K S and Q S read it rounded to bf16, and the update reads the scaled corrections rounded to bf16:
// errors of 2^-9 of each element, as those of the values that are stored. The triangles and what is multiplied by them are
// fp32.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// Words of a value of `first` and one of `second`, rounded to bf16.
[[gnu::always_inline]] inline __m512i round_to_pairs(__m512 first, __m512 second) {
  const __m512i places = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20,
                                          4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_maskz_permutexvar_epi16(0xffffffffU, places, round_to_bf16(first, second));
}

/// Working memory of a task. Rows and columns of tokens behind the last one are zeros as far as tiles reach.
struct ChunkSpace {
  ChunkSpace(int64_t k_dim, int64_t v_dim) {
    const int64_t key_words = kMaxChunk * k_dim / 2, square = kMaxChunk * kMaxChunk, values = kMaxChunk * v_dim;
    const int64_t state = k_dim * v_dim;
    float* next = thread_scratch(4 * key_words + 2 * kMaxChunk + 4 * square + 2 * values + values / 2 + state / 2);
    const auto take = [&next](int64_t count) {
      float* piece = next;
      next += count;
      return piece;
    };
    const auto take_words = [&](int64_t count) { return reinterpret_cast<uint32_t*>(take(count)); };
    k = take_words(key_words);
    q = take_words(key_words);
    k_columns = take_words(key_words);
    k_tokens = take_words(key_words);
    k_lengths = take(kMaxChunk);
    q_lengths = take(kMaxChunk);
    kk = take(square);
    qk = take(square);
    a = take(square);
    m = take(square);
    n = take(values);
    out = take(values);
    n_tokens = take_words(values / 2);
    state_pairs = take_words(state / 2);
  }

  // What the value heads of a key head share.
  uint32_t* k;          // [kMaxChunk, k_dim / 2] keys as stored
  uint32_t* q;          // likewise, queries
  uint32_t* k_columns;  // [k_dim / 2, kMaxChunk] k transposed, in words of two of a token's elements
  uint32_t* k_tokens;   // [k_dim, kMaxChunk / 2] k transposed, in words of two tokens' elements
  float* k_lengths;     // [kMaxChunk] what scales keys
  float* q_lengths;     // [kMaxChunk] what scales queries
  float* kk;            // [kMaxChunk, kMaxChunk] K K^T of keys as stored, up to the diagonal's tile
  float* qk;            // likewise, Q K^T

  // Of one value head.
  float* a;               // [kMaxChunk, kMaxChunk] -A
  float* m;               // [kMaxChunk, kMaxChunk]
  float* n;               // [kMaxChunk, v_dim]
  float* out;             // [kMaxChunk, v_dim]
  uint32_t* n_tokens;     // [kMaxChunk / 2, v_dim] e^(G_last - G) N of scaled keys, in words of two tokens' elements
  uint32_t* state_pairs;  // [k_dim / 2, v_dim] the state in words of two rows' elements
};

inline int64_t round_up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

/// Copies rows [row, row + count) of one head's columns, zeros behind them up to the next multiple of kPairSide, and says what
/// scales each to `length`.
inline void load_rows(const ConstMatrixView& qkv, int64_t column, int64_t row, int64_t count, int64_t k_dim, float length,
                      uint32_t* rows, float* lengths) {
  const int64_t num_words = k_dim / 2;
  for (int64_t r = 0; r < count; ++r) {
    const bfloat16* from = row_of<bfloat16>(qkv, row + r) + column;
    F32x16 squares(0.0f);
    for (int64_t i = 0; i < k_dim; i += kLanes) {
      const F32x16 x = load(from + i);
      squares = fma(x, x, squares);
    }
    lengths[r] = length_factor(length, horizontal_sum(squares));
    std::memcpy(rows + r * num_words, from, static_cast<std::size_t>(k_dim) * 2);
  }
  const int64_t end = round_up(count, kPairSide);
  std::memset(rows + count * num_words, 0, static_cast<std::size_t>((end - count) * num_words) * 4);
  for (int64_t r = count; r < end; ++r) lengths[r] = 0.0f;
}

/// k_columns and k_tokens of k.
inline void arrange_keys(const ChunkSpace& w, int64_t count, int64_t k_dim) {
  const int64_t num_words = k_dim / 2, end = round_up(count, kPairSide);
  for (int64_t token = 0; token < end; token += kWords) {
    for (int64_t word = 0; word < num_words; word += kWords) {
      Words rows[kWords];
      for (int64_t i = 0; i < kWords; ++i) std::memcpy(&rows[i], w.k + (token + i) * num_words + word, sizeof(Words));
      transpose(rows);
      for (int64_t i = 0; i < kWords; ++i) std::memcpy(w.k_columns + (word + i) * kMaxChunk + token, &rows[i], sizeof(Words));
    }
  }
  const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24, 22, 20,
                                        18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(1));
  for (int64_t word = 0; word < num_words; ++word) {
    uint32_t* to = w.k_tokens + word * kMaxChunk;  // of two columns of k
    for (int64_t token = 0; token < end; token += 2 * kWords) {
      const uint32_t* from = w.k_columns + word * kMaxChunk + token;
      const __m512i first = _mm512_loadu_si512(from), second = _mm512_loadu_si512(from + kWords);
      _mm512_storeu_si512(to + token / 2, _mm512_permutex2var_epi16(first, even, second));
      _mm512_storeu_si512(to + kMaxChunk / 2 + token / 2, _mm512_permutex2var_epi16(first, odd, second));
    }
  }
}

/// kk and qk: rows of tiles, each up to the diagonal.
template <class Unit>
void multiply_keys(Unit& unit, const ChunkSpace& w, int64_t count, int64_t k_dim) {
  for (int64_t first = 0; first < count; first += Unit::kRows) {
    PairProduct product{.a = w.k + first * k_dim / 2,
                        .a_stride = k_dim / 2,
                        .b = w.k_columns,
                        .b_stride = kMaxChunk,
                        .c = w.kk + first * kMaxChunk,
                        .c_stride = kMaxChunk,
                        .m = Unit::kRows,
                        .n = round_up(first + Unit::kRows, kPairSide),
                        .num_pairs = k_dim / 2,
                        .c_scale = 0.0f};
    unit.multiply(product);
    product.a = w.q + first * k_dim / 2;
    product.c = w.qk + first * kMaxChunk;
    unit.multiply(product);
  }
}

/// What the value heads of the task's key head share, of `count` tokens from `row`.
template <class Unit>
void load_chunk(Unit& unit, const HeadTask& task, const ChunkSpace& w, int64_t row, int64_t count) {
  const GatedDeltaRuleArgs& args = task.args;
  load_rows(args.qkv, task.k_column(), row, count, args.k_dim, 1.0f, w.k, w.k_lengths);
  load_rows(args.qkv, task.q_column(), row, count, args.k_dim, query_length(args.k_dim), w.q, w.q_lengths);
  arrange_keys(w, count, args.k_dim);
  multiply_keys(unit, w, count, args.k_dim);
}

/// The triangles -A and M; entries above the diagonal are zero within the vector of the diagonal and not written behind it.
inline void make_triangles(const HeadTask& task, const ChunkSpace& w, const ChunkDecays& decays, int64_t row, int64_t count) {
  float iota[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) iota[i] = static_cast<float>(i);
  for (int64_t r = 0; r < count; ++r) {
    const F32x16 diagonal(static_cast<float>(r)), sum(decays.sums[r]);
    const F32x16 a_scale(-task.beta(row + r) * w.k_lengths[r]), m_scale(w.q_lengths[r]);
    for (int64_t s = 0; s <= r; s += kLanes) {
      const F32x16 factor = exp(min(sum - load(decays.sums + s), F32x16(0.0f))) * load(w.k_lengths + s);
      const F32x16 column = load(iota) + F32x16(static_cast<float>(s));
      const int64_t at = r * kMaxChunk + s;
      store(w.a + at, select(diagonal > column, load(w.kk + at) * factor * a_scale, 0.0f));
      store(w.m + at, select(column > diagonal, 0.0f, load(w.qk + at) * factor * m_scale));
    }
  }
}

/// The state in words of two rows, rounded to bf16.
inline void round_state(const HeadTask& task, const ChunkSpace& w) {
  const int64_t v_dim = task.args.v_dim;
  for (int64_t i = 0; i < task.args.k_dim; i += 2) {
    const float* rows = task.state + i * v_dim;
    uint32_t* pairs = w.state_pairs + i / 2 * v_dim;
    for (int64_t j = 0; j < v_dim; j += kWords) {
      _mm512_storeu_si512(pairs + j, round_to_pairs(_mm512_loadu_ps(rows + j), _mm512_loadu_ps(rows + v_dim + j)));
    }
  }
}

/// n = diag(beta) (V - diag(e^G) K S), out = diag(e^G) Q S.
template <class Unit>
void multiply_state(Unit& unit, const HeadTask& task, const ChunkSpace& w, const ChunkDecays& decays, int64_t row,
                    int64_t count) {
  const int64_t k_dim = task.args.k_dim, v_dim = task.args.v_dim;
  round_state(task, w);
  PairProduct product{.a = w.k,
                      .a_stride = k_dim / 2,
                      .b = w.state_pairs,
                      .b_stride = v_dim,
                      .c = w.n,
                      .c_stride = v_dim,
                      .m = round_up(count, Unit::kRows),
                      .n = v_dim,
                      .num_pairs = k_dim / 2,
                      .c_scale = 0.0f};
  unit.multiply(product);
  product.a = w.q;
  product.c = w.out;
  unit.multiply(product);
  for (int64_t r = 0; r < count; ++r) {
    const bfloat16* v = row_of<bfloat16>(task.args.qkv, row + r) + task.v_column();
    float* n = w.n + r * v_dim;
    float* out = w.out + r * v_dim;
    const F32x16 beta(task.beta(row + r)), k_scale(-decays.now[r] * w.k_lengths[r]), q_scale(decays.now[r] * w.q_lengths[r]);
    for (int64_t j = 0; j < v_dim; j += kLanes) {
      store(n + j, fma(load(n + j), k_scale, load(v + j)) * beta);
      store(out + j, load(out + j) * q_scale);
    }
  }
}

/// S <- e^(G_last) S + sum_s e^(G_last - G_s) k_s N_s^T.
template <class Unit>
void update_state(Unit& unit, const HeadTask& task, const ChunkSpace& w, const ChunkDecays& decays, int64_t count) {
  const int64_t k_dim = task.args.k_dim, v_dim = task.args.v_dim;
  for (int64_t s = 0; s < count; s += 2) {  // behind an odd last token is a row of zeros
    const __m512 first = _mm512_set1_ps(decays.left[s] * w.k_lengths[s]);
    const __m512 second = _mm512_set1_ps(decays.left[s + 1] * w.k_lengths[s + 1]);
    const float* rows = w.n + s * v_dim;
    for (int64_t j = 0; j < v_dim; j += kWords) {
      const __m512 low = _mm512_mul_ps(_mm512_loadu_ps(rows + j), first);
      const __m512 high = _mm512_mul_ps(_mm512_loadu_ps(rows + v_dim + j), second);
      _mm512_storeu_si512(w.n_tokens + s / 2 * v_dim + j, round_to_pairs(low, high));
    }
  }
  const int64_t num_pairs = (count + 1) / 2, end = round_up(num_pairs, kPairBlock);
  std::memset(w.n_tokens + num_pairs * v_dim, 0, static_cast<std::size_t>((end - num_pairs) * v_dim) * 4);
  unit.multiply({.a = w.k_tokens,
                 .a_stride = kMaxChunk / 2,
                 .b = w.n_tokens,
                 .b_stride = v_dim,
                 .c = task.state,
                 .c_stride = v_dim,
                 .m = k_dim,
                 .n = v_dim,
                 .num_pairs = num_pairs,
                 .c_scale = decays.now[count - 1]});
}

/// `count` <= args.chunk tokens by the chunk form, whose keys load_chunk() has loaded.
template <class Unit>
void run_chunk(Unit& unit, const HeadTask& task, const ChunkSpace& w, int64_t row, int64_t count) {
  ChunkDecays decays;
  prefetch_values<bfloat16>(task, row, count);
  sum_decays(task, row, count, decays);
  make_triangles(task, w, decays, row, count);
  multiply_state(unit, task, w, decays, row, count);
  solve_triangle(w.a, w.n, count, task.args.v_dim);
  add_triangle_product(w.m, w.n, w.out, count, task.args.v_dim);
  store_outputs<bfloat16>(task, w.out, row, count, task.args.v_dim);
  update_state(unit, task, w, decays, count);
}

/// Value heads [first, first + count) of one sequence, row by row.
inline void run_recurrence(const GatedDeltaRuleArgs& args, std::size_t sequence_idx, int64_t first, int64_t count) {
  const RecurrenceSpace w = make_recurrence(args.k_dim, args.v_dim, thread_scratch(recurrence_floats(args.k_dim, args.v_dim)));
  const SequenceSpan& sequence = args.sequences[sequence_idx];
  const HeldDeltaRows* held = sequence.num_replayed > 0 ? &args.held[sequence_idx] : nullptr;
  for (int64_t head = first; head < first + count; ++head) {
    float* state = args.states[sequence_idx] + head * args.k_dim * args.v_dim;
    const float* ahead = head + 1 < first + count ? state + args.k_dim * args.v_dim : state;
    run_tokens<bfloat16>({args, sequence, head, state}, w, held, ahead);
  }
}

/// Likewise by chunks; all are of one key head.
template <class Unit>
void run_chunks(const GatedDeltaRuleArgs& args, std::size_t sequence_idx, int64_t first, int64_t count) {
  const ChunkSpace w(args.k_dim, args.v_dim);
  Unit unit;
  const SequenceSpan& sequence = args.sequences[sequence_idx];
  const auto task_of = [&](int64_t v_head) {
    return HeadTask{args, sequence, v_head, args.states[sequence_idx] + v_head * args.k_dim * args.v_dim};
  };
  const auto rows_from = [&](int64_t t) { return sequence.num_tokens - t < args.chunk ? sequence.num_tokens - t : args.chunk; };
  for (int64_t t = 0; t < sequence.num_tokens; t += args.chunk) {
    const int64_t row = sequence.first_row + t, count_here = rows_from(t);
    load_chunk(unit, task_of(first), w, row, count_here);
    prefetch_keys<bfloat16>(task_of(first), row + count_here, rows_from(t + count_here));
    for (int64_t head = first; head < first + count; ++head) run_chunk(unit, task_of(head), w, row, count_here);
  }
}

/// bf16, and heads of whole tiles.
inline bool takes_bf16_delta_rule(const GatedDeltaRuleArgs& args) {
  return args.qkv.dtype == DType::kBF16 && args.k_dim % kPairSide == 0 && args.v_dim % kPairSide == 0;
}

/// The op.
template <class Unit>
void run_bf16_delta_rule(ThreadPool& pool, const GatedDeltaRuleArgs& args) {
  check_delta_rule(args);
  // All value heads of a key head are one task where that leaves every thread some.
  constexpr int64_t kTasksOfThread = 4;
  const int64_t num_sequences = static_cast<int64_t>(args.sequences.size()), group = args.num_v_heads / args.num_k_heads;
  const int64_t heads = num_sequences * args.num_k_heads >= kTasksOfThread * pool.num_threads() ? group : 1;
  const int64_t per_sequence = args.num_v_heads / heads;
  pool.parallel_for(num_sequences * per_sequence, [&](int64_t task_idx, int) {
    const DenormalsAsZeros denormals_as_zeros;
    const auto sequence_idx = static_cast<std::size_t>(task_idx / per_sequence);
    const int64_t first = task_idx % per_sequence * heads;
    if (args.sequences[sequence_idx].form == DeltaForm::kRecurrent) {
      run_recurrence(args, sequence_idx, first, heads);
    } else {
      run_chunks<Unit>(args, sequence_idx, first, heads);
    }
  });
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
