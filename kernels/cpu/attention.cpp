#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile_matmul.h"

// Attention over tiles of 64 keys counted from position 0, with the running maximum and sum of arXiv 2205.14135. Query rows
// are the (token, head) pairs of one group of heads that share a key head; a register holds 16 rows, so that no sum runs across
// lanes and a row's arithmetic never depends on its neighbours:
//
//   S^T [keys, rows] = K [keys, head_dim] Q^T;   P = exp(S - max);   O [rows, head_dim] = alpha O + P^T V
//
// A key behind a row's position has P = 0 exactly and leaves O and the sum as they are, and a tile of such keys only has
// alpha = 1. Hence a row gives the same bits as the only row of a call and within a long prefill.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kKeyTile = 64;
constexpr int64_t kMaxTileRows = 64;

/// Working memory of a task, one allocation cut into pieces.
struct Workspace {
  float* queries;    // [head_dim, rows] scaled, transposed
  float* keys;       // [kKeyTile, padded_dim]
  float* values;     // [kKeyTile, padded_dim]
  float* scores;     // [kKeyTile, rows], then the weights P
  float* sums;       // [rows, padded_dim] O before the division
  float* row_max;    // [rows]
  float* row_sum;    // [rows]
  float* row_alpha;  // [rows] factor of what was summed before this tile
  float* row_limit;  // [rows] last visible key, relative to the tile
};

Workspace make_workspace(int64_t head_dim) {
  const int64_t padded_dim = round_up_16(head_dim);
  float* next =
      thread_scratch((kMaxTileRows + 2 * kKeyTile + kMaxTileRows) * padded_dim + kKeyTile * kMaxTileRows + 4 * kMaxTileRows);
  const auto take = [&next](int64_t count) {
    float* piece = next;
    next += count;
    return piece;
  };
  Workspace w;
  w.queries = take(padded_dim * kMaxTileRows);
  w.keys = take(kKeyTile * padded_dim);
  w.values = take(kKeyTile * padded_dim);
  w.scores = take(kKeyTile * kMaxTileRows);
  w.sums = take(kMaxTileRows * padded_dim);
  w.row_max = take(kMaxTileRows);
  w.row_sum = take(kMaxTileRows);
  w.row_alpha = take(kMaxTileRows);
  w.row_limit = take(kMaxTileRows);
  return w;
}

/// One task: rows [first_row, first_row + num_rows) of the (token, head) pairs of one sequence and key head, tokens outermost.
struct QueryTile {
  SequenceSpan sequence;
  const int32_t* blocks;
  int64_t kv_head;
  int64_t group;  // query heads a key head
  int64_t first_row;
  int64_t num_rows;
  int64_t lanes;  // num_rows rounded up to 16

  int64_t token(int64_t row) const { return (first_row + row) / group; }
  int64_t head(int64_t row) const { return kv_head * group + (first_row + row) % group; }
  /// The last key that a row sees; lanes behind the last row follow it.
  int64_t position(int64_t row) const { return sequence.num_past + token(row < num_rows ? row : num_rows - 1); }
};

/// Widens row `row` of the cache to fp32.
template <class T>
void load_row(const KvLayerView& cache, const std::byte* base, int64_t row, float* to) {
  if constexpr (std::is_same_v<T, int8_t>) {
    const auto store_values = [to](int64_t i, F32x16 values, auto) { store(to + i, values); };
    for_each_value(code_row(cache, base, row), cache.head_dim, store_values);
  } else {
    const T* from = reinterpret_cast<const T*>(base) + row * cache.head_dim;
    for_each_vector(cache.head_dim, [=](int64_t i, auto lanes) { store(to + i, load(from + i, lanes)); });
  }
}

/// Widens keys (or values) [first, first + count) to fp32 rows of padded_dim, filled up with zeros.
template <class T>
void load_rows(const KvLayerView& cache, const std::byte* base, const QueryTile& tile, int64_t first, int64_t count,
               float* to) {
  const int64_t padded_dim = round_up_16(cache.head_dim);
  for (int64_t i = 0; i < count; ++i, to += padded_dim) {
    const int64_t block = tile.blocks[(first + i) / cache.block_tokens];
    const int64_t row = (block * cache.num_kv_heads + tile.kv_head) * cache.block_tokens + (first + i) % cache.block_tokens;
    load_row<T>(cache, base, row, to);
  }
}

template <class T>
void load_queries(const AttentionArgs& args, const QueryTile& tile, const Workspace& w) {
  const int64_t head_dim = args.cache.head_dim;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(head_dim));
  for (int64_t r = 0; r < tile.lanes; ++r) {
    if (r >= tile.num_rows) {
      for (int64_t d = 0; d < head_dim; ++d) w.queries[d * tile.lanes + r] = 0.0f;
      continue;
    }
    const T* q = row_of<T>(args.q, tile.sequence.first_row + tile.token(r)) + tile.head(r) * head_dim;
    for (int64_t d = 0; d < head_dim; ++d) w.queries[d * tile.lanes + r] = widen(q[d]) * scale;
  }
}

/// Turns the scores of `num_keys` keys from `first_key` into weights, and updates maximum, sum and alpha of every row.
void update_weights(const QueryTile& tile, const Workspace& w, int64_t first_key, int64_t num_keys) {
  const bool all_visible = first_key + num_keys - 1 <= tile.position(0);
  if (!all_visible) {
    for (int64_t r = 0; r < tile.lanes; ++r) w.row_limit[r] = static_cast<float>(tile.position(r) - first_key);
  }
  const F32x16 minus_infinity(-__builtin_inff());
  for (int64_t r = 0; r < tile.lanes; r += kLanes) {
    float* scores = w.scores + r;
    const F32x16 old_max = load(w.row_max + r);
    F32x16 new_max = old_max;
    for (int64_t j = 0; j < num_keys; ++j) {
      F32x16 score = load(scores + j * tile.lanes);
      if (!all_visible) {
        score = select(F32x16(static_cast<float>(j)) > load(w.row_limit + r), minus_infinity, score);
        store(scores + j * tile.lanes, score);
      }
      new_max = max(score, new_max);
    }
    F32x16 sum(0.0f);
    for (int64_t j = 0; j < num_keys; ++j) {
      const F32x16 weight = exp(load(scores + j * tile.lanes) - new_max);
      store(scores + j * tile.lanes, weight);
      sum = sum + rounded<float>(weight);
    }
    const F32x16 alpha = exp(old_max - new_max);
    store(w.row_alpha + r, alpha);
    store(w.row_sum + r, fma(load(w.row_sum + r), rounded<float>(alpha), sum));
    store(w.row_max + r, new_max);
  }
}

/// O = alpha O, where alpha is not one.
void rescale_sums(const QueryTile& tile, const Workspace& w, int64_t padded_dim) {
  for (int64_t r = 0; r < tile.num_rows; ++r) {
    if (w.row_alpha[r] == 1.0f) continue;
    const F32x16 alpha(w.row_alpha[r]);
    float* sums = w.sums + r * padded_dim;
    for (int64_t d = 0; d < padded_dim; d += kLanes) store(sums + d, load(sums + d) * alpha);
  }
}

template <class T>
void store_output(const AttentionArgs& args, const QueryTile& tile, const Workspace& w) {
  const int64_t head_dim = args.cache.head_dim;
  for (int64_t r = 0; r < tile.num_rows; ++r) {
    T* out = row_of<T>(args.out, tile.sequence.first_row + tile.token(r)) + tile.head(r) * head_dim;
    const float* sums = w.sums + r * round_up_16(head_dim);
    const F32x16 row_sum(w.row_sum[r]);
    int64_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) store(out + d, load(sums + d) / row_sum);
    if (d < head_dim) store_partial(out + d, load(sums + d) / row_sum, head_dim - d);
  }
}

/// Of rows of T over a cache of Cached.
template <class T, class Cached>
void attend(const AttentionArgs& args, const QueryTile& tile) {
  const KvLayerView& cache = args.cache;
  const int64_t padded_dim = round_up_16(cache.head_dim);
  const Workspace w = make_workspace(cache.head_dim);
  load_queries<T>(args, tile, w);
  for (int64_t r = 0; r < tile.lanes; r += kLanes) {
    store(w.row_max + r, F32x16(-__builtin_inff()));
    store(w.row_sum + r, F32x16(0.0f));
  }
  for (int64_t i = 0; i < tile.num_rows * padded_dim; i += kLanes) store(w.sums + i, F32x16(0.0f));

  const int64_t num_visible = tile.position(tile.num_rows - 1) + 1;
  for (int64_t first_key = 0; first_key < num_visible; first_key += kKeyTile) {
    const int64_t num_keys = num_visible - first_key < kKeyTile ? num_visible - first_key : kKeyTile;
    load_rows<Cached>(cache, cache.keys.raw(), tile, first_key, num_keys, w.keys);
    tile_matmul({.a = w.keys,
                 .a_row_stride = padded_dim,
                 .a_k_stride = 1,
                 .b = w.queries,
                 .b_stride = tile.lanes,
                 .c = w.scores,
                 .c_stride = tile.lanes,
                 .m = num_keys,
                 .n = tile.lanes,
                 .k = cache.head_dim,
                 .c_scale = 0.0f});
    update_weights(tile, w, first_key, num_keys);
    rescale_sums(tile, w, padded_dim);
    load_rows<Cached>(cache, cache.values.raw(), tile, first_key, num_keys, w.values);
    tile_matmul({.a = w.scores,
                 .a_row_stride = 1,
                 .a_k_stride = tile.lanes,
                 .b = w.values,
                 .b_stride = padded_dim,
                 .c = w.sums,
                 .c_stride = padded_dim,
                 .m = tile.num_rows,
                 .n = padded_dim,
                 .k = num_keys,
                 .c_scale = 1.0f});
  }
  store_output<T>(args, tile, w);
}

/// Tasks of a call whose tiles have `tile_rows` rows.
int64_t count_tasks(const AttentionArgs& args, int64_t group, int64_t tile_rows) {
  int64_t num_tasks = 0;
  for (const SequenceSpan& sequence : args.sequences) {
    num_tasks += (sequence.num_tokens * group + tile_rows - 1) / tile_rows * args.cache.num_kv_heads;
  }
  return num_tasks;
}

/// Task `task_idx` in the order sequence, tile (last first: it sees the most keys), key head.
QueryTile find_tile(const AttentionArgs& args, int64_t group, int64_t tile_rows, int64_t task_idx) {
  std::size_t s = 0;
  int64_t num_tiles = 0;
  for (;; ++s) {
    num_tiles = (args.sequences[s].num_tokens * group + tile_rows - 1) / tile_rows;
    if (task_idx < num_tiles * args.cache.num_kv_heads) break;
    task_idx -= num_tiles * args.cache.num_kv_heads;
  }
  const SequenceSpan& sequence = args.sequences[s];
  const int64_t rows = sequence.num_tokens * group;
  const int64_t first_row = (num_tiles - 1 - task_idx / args.cache.num_kv_heads) * tile_rows;
  const int64_t num_rows = rows - first_row < tile_rows ? rows - first_row : tile_rows;
  return {.sequence = sequence,
          .blocks = args.block_tables[s],
          .kv_head = task_idx % args.cache.num_kv_heads,
          .group = group,
          .first_row = first_row,
          .num_rows = num_rows,
          .lanes = round_up_16(num_rows)};
}

}  // namespace

void attention(ThreadPool& pool, const AttentionArgs& args) {
  const KvLayerView& cache = args.cache;
  check_attention(args);
  const int64_t group = args.num_heads / cache.num_kv_heads;
  int64_t tile_rows = kMaxTileRows;
  while (tile_rows > kLanes && count_tasks(args, group, tile_rows) < 2 * pool.num_threads()) tile_rows /= 2;
  pool.parallel_for(count_tasks(args, group, tile_rows), [&](int64_t task_idx, int) {
    const QueryTile tile = find_tile(args, group, tile_rows, task_idx);
    visit_dtype(args.q.dtype, [&]<class T>() {
      if (cache.dtype == DType::kI8) {
        attend<T, int8_t>(args, tile);
      } else {
        attend<T, T>(args, tile);
      }
    });
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
