#pragma once

#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/bf16_code_rows.h"
#include "kernels/cpu/bf16_key_weights.h"
#include "runtime/base/check.h"

// Attention over the paged cache for units that multiply bf16 (bf16_attention.h). A cache of codes becomes bf16 on the way,
// exactly (bf16_code_rows.h): the same products, and the same bits as over a bf16 cache that holds what the codes stand for.
//
// A row's keys are taken in blocks and splits counted from position 0 (attention_plan.h), each split with a peak and sums of
// its own. A key behind a row's position weighs exactly 0 and leaves sums as they are; a block of such keys has alpha = 1.
// Hence a row gives the same bits as the only row of a call and within a long prefill. (A zero's sign would tell them apart:
// sums of -0 become 0 in the end.)
//
// How a group walks along its keys is one of two classes, whose elements of S and O are the same products, added in the same
// order: TileWalk, below, copies keys and values into tiles; a unit may have another one that reads the cache's own rows
// (Unit::RowWalk, of codes Unit::CodeWalk, or TileWalk if it has none), and says which caches it can read (Unit::reads_rows).
// Unit::kGroupRows is how many rows share what is copied, at most. A walk has
//
//   kCopiesKeys                      whether it wants room for a block's keys, too, as for its values
//   attend(first, end, sums_of)      adds the keys [first, end) to sums_of(piece) of every piece
//   fold(shape, count, later, to)    adds what `count` rows of a piece have of later keys
//   store(rows, piece, sums)         writes a piece's output
//
// Included only by files that are compiled for one instruction set, with AVX-512 at least.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// The rows of a group, in pieces of 32: what they read, and where they go.
class GroupRows {
 public:
  GroupRows(const AttentionArgs& args, const HeadShape& shape, const RowGroup& group)
      : args_(args),
        shape_(shape),
        group_(group),
        sequence_(args.sequences[static_cast<std::size_t>(group.sequence_idx)]),
        blocks_(args.block_tables[static_cast<std::size_t>(group.sequence_idx)]),
        num_heads_(args.num_heads / args.cache.num_kv_heads) {}

  const HeadShape& shape() const { return shape_; }
  int64_t num_pieces() const { return (group_.num_rows + kRows - 1) / kRows; }
  int64_t piece_rows(int64_t piece) const {
    const int64_t left = group_.num_rows - piece * kRows;
    return left < kRows ? left : kRows;
  }
  /// The last key that row `r` of a piece sees; lanes behind the last row follow it.
  int64_t position(int64_t piece, int64_t r) const {
    const int64_t row = piece * kRows + r;
    return sequence_.num_past + token(row < group_.num_rows ? row : group_.num_rows - 1);
  }
  /// How many of `num_keys` keys from `first_key` on the last row of a piece sees; none, if not above 0.
  int64_t num_visible(int64_t piece, int64_t first_key, int64_t num_keys) const {
    const int64_t count = position(piece, kRows - 1) + 1 - first_key;
    return count < num_keys ? count : num_keys;
  }
  /// Of the cache's keys and values.
  int64_t cache_row(int64_t key) const {
    const KvLayerView& cache = args_.cache;
    const int64_t block = blocks_[key / cache.block_tokens];
    return (block * cache.num_kv_heads + group_.kv_head) * cache.block_tokens + key % cache.block_tokens;
  }
  bool has_codes() const { return args_.cache.dtype == DType::kI8; }
  const uint16_t* key_row(int64_t row) const { return row_at(args_.cache.keys, row); }
  const uint16_t* value_row(int64_t row) const { return row_at(args_.cache.values, row); }
  CodeRow key_codes(int64_t row) const { return code_row(args_.cache, args_.cache.keys.raw(), row); }
  CodeRow value_codes(int64_t row) const { return code_row(args_.cache, args_.cache.values.raw(), row); }
  const uint16_t* query_row(int64_t piece, int64_t r) const {
    const int64_t row = piece * kRows + r;
    return reinterpret_cast<const uint16_t*>(row_of<bfloat16>(args_.q, sequence_.first_row + token(row)) + first_col(row));
  }
  bfloat16* out_row(int64_t piece, int64_t r) const {
    const int64_t row = piece * kRows + r;
    return row_of<bfloat16>(args_.out, sequence_.first_row + token(row)) + first_col(row);
  }

 private:
  int64_t token(int64_t row) const { return (group_.first_row + row) / num_heads_; }
  int64_t first_col(int64_t row) const {
    return (group_.kv_head * num_heads_ + (group_.first_row + row) % num_heads_) * shape_.num_cols;
  }
  const uint16_t* row_at(const Address<std::byte>& base, int64_t row) const {
    return reinterpret_cast<const uint16_t*>(base.raw()) + row * shape_.num_cols;
  }

  const AttentionArgs& args_;
  const HeadShape& shape_;
  const RowGroup& group_;
  const SequenceSpan& sequence_;
  const int32_t* blocks_;
  int64_t num_heads_;  // of the key head
};

/// Working memory of a task: 0.5 MB for 128 rows of heads of 256.
struct CachedWorkspace {
  CachedWorkspace(const HeadShape& shape, int64_t num_pieces, int64_t key_block, bool copies_keys, bool has_codes) {
    const int64_t steps = key_block / kKeyStep;
    const int64_t wide_elements = has_codes ? kKeyStep * shape.k_tiles * kPairCols : 0;
    const int64_t num_scales = has_codes ? key_block * shape.k_tiles : 0;
    const int64_t key_elements = copies_keys ? steps * shape.key_step_elements() : 0;
    const int64_t value_elements = steps * shape.value_step_elements();
    const int64_t bf16_elements =
        key_elements + value_elements + wide_elements + num_pieces * shape.query_elements() + key_block * kRows;
    sums_size = KeySums::size(shape);
    ScratchPieces pieces(bf16_elements / 2 + 2 * num_pieces * sums_size + key_block * kRows + 2 * kRows + 2 * num_scales);
    keys = pieces.take_bf16(key_elements);
    values = pieces.take_bf16(value_elements);
    wide = pieces.take_bf16(wide_elements);
    key_scales = pieces.take(num_scales);
    value_scales = pieces.take(num_scales);
    queries = pieces.take_bf16(num_pieces * shape.query_elements());
    block.weights = pieces.take_bf16(key_block * kRows);
    sums = pieces.take(2 * num_pieces * sums_size);
    block.scores = pieces.take(key_block * kRows);
    block.row_alpha = pieces.take(kRows);
    block.row_limit = reinterpret_cast<int32_t*>(pieces.take(kRows));
  }

  int64_t sums_size;
  uint16_t* keys;  // of a block, as values
  uint16_t* values;
  uint16_t* wide;       // [kKeyStep, k_tiles * 32] codes as bf16; none but for codes
  float* key_scales;    // [key_block, k_tiles] of a block's codes; likewise
  float* value_scales;  // same
  uint16_t* queries;    // [num_pieces] of 32 rows
  float* sums;          // [num_pieces][2]: KeySums of the splits before, and of this one
  ScoreBlock block;
};

/// Weighs the keys of a block for the first kHalves times 16 rows of a piece. Returns whether sums must be scaled by alpha.
template <int kHalves>
bool weigh_block(const GroupRows& rows, int64_t piece, int64_t first_key, int64_t num_keys, const ScoreBlock& block,
                 float* row_peak, float scale) {
  bool rescales = false;
  if (first_key + num_keys - 1 <= rows.position(piece, 0)) {
    for (int64_t half = 0; half < kHalves; ++half) rescales |= weigh_keys<false>(block, row_peak, half, num_keys, scale);
    return rescales;
  }
  for (int64_t r = 0; r < kHalves * kSide; ++r) {
    const int64_t limit = rows.position(piece, r) - first_key;
    block.row_limit[r] = static_cast<int32_t>(limit < num_keys ? limit : num_keys);
  }
  for (int64_t half = 0; half < kHalves; ++half) rescales |= weigh_keys<true>(block, row_peak, half, num_keys, scale);
  return rescales;
}

/// With tiles of keys and values, copied once for all rows of the group.
template <class Unit>
class TileWalk {
 public:
  static constexpr bool kCopiesKeys = true;

  TileWalk(const GroupRows& rows, const CachedWorkspace& w, float scale) : rows_(rows), w_(w), scale_(scale) {}

  template <class SumsOf>
  void attend(int64_t first, int64_t end, SumsOf sums_of) const {
    for (int64_t key = first; key < end; key += Unit::kKeyBlock) {
      const int64_t num_keys = end - key < Unit::kKeyBlock ? end - key : Unit::kKeyBlock;
      load_block(key, num_keys);
      for (int64_t piece = 0; piece < rows_.num_pieces(); ++piece) {
        const int64_t count = rows_.num_visible(piece, key, num_keys);
        if (count <= 0) continue;
        if (rows_.piece_rows(piece) <= kSide) {
          attend_block<1>(piece, sums_of(piece), key, count);
        } else {
          attend_block<2>(piece, sums_of(piece), key, count);
        }
      }
    }
  }

  static void fold(const HeadShape& shape, int64_t count, const KeySums& later, const KeySums& to) {
    fold_columns(shape, count, later, to);
  }

  static void store(const GroupRows& rows, int64_t piece, const KeySums& sums) {
    const HeadShape& shape = rows.shape();
    for (int64_t i = 0; i < shape.num_cols * kRows; i += kSide)
      _mm512_store_ps(sums.sums + i, _mm512_load_ps(sums.sums + i) + _mm512_setzero_ps());
    store_output(shape, sums.sums, rows.piece_rows(piece), [&](int64_t r) { return rows.out_row(piece, r); });
  }

 private:
  void load_block(int64_t first_key, int64_t num_keys) const {
    int64_t cache_rows[Unit::kKeyBlock];
    for (int64_t j = 0; j < num_keys; ++j) cache_rows[j] = rows_.cache_row(first_key + j);
    if (rows_.has_codes()) return load_codes(num_keys, cache_rows);
    load_keys(
        rows_.shape(), num_keys, [&](int64_t j) { return rows_.key_row(cache_rows[j]); }, w_.keys);
    load_values(
        rows_.shape(), num_keys, [&](int64_t j) { return rows_.value_row(cache_rows[j]); }, w_.values);
  }

  /// Widened first, a step of keys at a time.
  void load_codes(int64_t num_keys, const int64_t* cache_rows) const {
    const HeadShape& shape = rows_.shape();
    const int64_t stride = shape.k_tiles * kPairCols;
    const auto wide_row = [&](int64_t j) { return w_.wide + j * stride; };
    for (int64_t key = 0; key < num_keys; key += kKeyStep) {
      const int64_t step = key / kKeyStep, count = num_keys - key < kKeyStep ? num_keys - key : kKeyStep;
      for (int64_t j = 0; j < count; ++j) widen_row(rows_.key_codes(cache_rows[key + j]), shape.num_cols, w_.wide + j * stride);
      load_keys(shape, count, wide_row, w_.keys + step * shape.key_step_elements());
      for (int64_t j = 0; j < count; ++j)
        widen_row(rows_.value_codes(cache_rows[key + j]), shape.num_cols, w_.wide + j * stride);
      load_values(shape, count, wide_row, w_.values + step * shape.value_step_elements());
    }
  }

  template <int kHalves>
  void attend_block(int64_t piece, const KeySums& sums, int64_t first_key, int64_t num_keys) const {
    const HeadShape& shape = rows_.shape();
    const int64_t num_steps = (num_keys + kKeyStep - 1) / kKeyStep;
    const uint16_t* queries = w_.queries + piece * shape.query_elements();
    Unit::template multiply_keys<kHalves>(shape, w_.keys, num_steps, queries, w_.block.scores);
    if (weigh_block<kHalves>(rows_, piece, first_key, num_keys, w_.block, sums.row_peak, scale_))
      rescale_sums<kHalves>(shape, w_.block.row_alpha, sums.sums);
    Unit::template multiply_values<kHalves>(shape, w_.values, num_steps, w_.block.weights, sums.sums);
  }

  const GroupRows& rows_;
  const CachedWorkspace& w_;
  float scale_;
};

/// A group's way through its splits, with one of the walks.
template <class Walk>
class GroupAttention {
 public:
  GroupAttention(const GroupRows& rows, int64_t num_splits, int64_t num_keys, int64_t key_block)
      : rows_(rows),
        num_splits_(num_splits),
        num_keys_(num_keys),
        w_(rows.shape(), rows.num_pieces(), key_block, Walk::kCopiesKeys, rows.has_codes()),
        walk_(rows_, w_, 1.44269504088896341f / __builtin_sqrtf(static_cast<float>(rows.shape().num_cols))) {}

  /// All keys of all rows.
  void attend_all() {
    load_all_queries();
    for (int64_t split = 0; split < num_splits_; ++split) {
      attend_keys(split, [&](int64_t piece) { return own_sums(piece, split); });
      if (split == 0) continue;
      for (int64_t piece = 0; piece < rows_.num_pieces(); ++piece) fold(piece, own_sums(piece, split), own_sums(piece, 0));
    }
    for (int64_t piece = 0; piece < rows_.num_pieces(); ++piece) Walk::store(rows_, piece, own_sums(piece, 0));
  }
  /// Those of one split, into part(piece).
  template <class PartOf>
  void attend_split(int64_t split, PartOf part) {
    load_all_queries();
    attend_keys(split, part);
  }
  /// Writes the rows of a piece whose parts, part(0 ‥ num_splits - 1), hold all splits.
  template <class PartOf>
  void fold_splits(int64_t piece, PartOf part) {
    for (int64_t split = 1; split < num_splits_; ++split) fold(piece, part(split), part(0));
    Walk::store(rows_, piece, part(0));
  }

 private:
  /// Of the splits before, or of this one.
  KeySums own_sums(int64_t piece, int64_t split) const {
    return {rows_.shape(), w_.sums + (2 * piece + (split == 0 ? 0 : 1)) * w_.sums_size};
  }
  void load_all_queries() const {
    for (int64_t piece = 0; piece < rows_.num_pieces(); ++piece) {
      load_queries(
          rows_.shape(), rows_.piece_rows(piece), [&](int64_t r) { return rows_.query_row(piece, r); },
          w_.queries + piece * rows_.shape().query_elements());
    }
  }
  template <class SumsOf>
  void attend_keys(int64_t split, SumsOf sums_of) const {
    for (int64_t piece = 0; piece < rows_.num_pieces(); ++piece) sums_of(piece).clear(rows_.shape());
    const int64_t first = split * kSplitKeys;
    walk_.attend(first, first + kSplitKeys < num_keys_ ? first + kSplitKeys : num_keys_, sums_of);
  }
  void fold(int64_t piece, const KeySums& later, const KeySums& to) const {
    Walk::fold(rows_.shape(), rows_.piece_rows(piece), later, to);
  }

  const GroupRows& rows_;
  int64_t num_splits_, num_keys_;
  CachedWorkspace w_;
  Walk walk_;
};

/// Calls fn(attention) with the group's GroupAttention.
template <class Unit, class Fn>
void with_group(const AttentionArgs& args, const HeadShape& shape, const RowGroup& group, Fn fn) {
  const GroupRows rows(args, shape, group);
  if (Unit::reads_rows(args.cache) && rows.has_codes()) {
    fn(GroupAttention<typename Unit::CodeWalk>(rows, group.num_splits, group.num_keys, Unit::kKeyBlock));
  } else if (Unit::reads_rows(args.cache)) {
    fn(GroupAttention<typename Unit::RowWalk>(rows, group.num_splits, group.num_keys, Unit::kKeyBlock));
  } else {
    fn(GroupAttention<TileWalk<Unit>>(rows, group.num_splits, group.num_keys, Unit::kKeyBlock));
  }
}

template <class Unit>
void run_cached_attention(ThreadPool& pool, const AttentionArgs& args) {
  check_attention(args);
  const HeadShape shape(args.cache.head_dim);
  FERRY_CHECK_LE(shape.num_cols, kMaxHeadDim);
  static_assert(kSplitKeys % Unit::kKeyBlock == 0);
  const AttentionPlan plan(args, pool.num_threads(), Unit::kGroupRows, KeySums::size(shape));
  pool.parallel_for(plan.num_tasks(), [&](int64_t task_idx, int) {
    [[maybe_unused]] const Unit unit{};
    const GroupTask& task = plan.task(task_idx);
    const RowGroup& group = plan.group_of(task);
    with_group<Unit>(args, shape, group, [&](auto&& attention) {
      if (task.split < 0) return attention.attend_all();
      attention.attend_split(task.split, [&](int64_t piece) { return KeySums(shape, plan.part(group, piece, task.split)); });
    });
  });
  if (plan.num_folds() == 0) return;
  pool.parallel_for(plan.num_folds(), [&](int64_t fold_idx, int) {
    const PieceFold& piece_fold = plan.fold(fold_idx);
    const RowGroup& group = plan.group_of(piece_fold);
    with_group<Unit>(args, shape, group, [&](auto&& attention) {
      attention.fold_splits(piece_fold.piece,
                            [&](int64_t split) { return KeySums(shape, plan.part(group, piece_fold.piece, split)); });
    });
  });
}

/// Rows of bf16 over a cache of bf16 or codes, and heads of up to kMaxHeadDim columns.
bool takes_cached_attention(const AttentionArgs& args) {
  return args.q.dtype == DType::kBF16 && args.cache.head_dim <= kMaxHeadDim;
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
