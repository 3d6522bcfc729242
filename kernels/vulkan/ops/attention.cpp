#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/op_checks.h"
#include "kernels/vulkan/ops/attention_kernels.h"
#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_attention.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

constexpr int64_t kMaxAttentionHeadDim = 1024;
constexpr uint32_t kReduceInvocations = 128, kAppendInvocations = 128;
// A sequence with as many workgroups keeps a large device busy without handing out its splits.
constexpr int64_t kBusyWorkgroups = 64;
constexpr int64_t kMaxPartialRows = int64_t{1} << 17;  // of head_dim floats: 128 MiB at 256

/// Splits of so many keys whose sums are kept apart: none where there is but one.
int64_t count_splits(int64_t num_keys) { return (num_keys + kSplitKeys - 1) / kSplitKeys; }
/// Rows of partial sums that `num_tokens` tokens which see so many keys leave.
int64_t count_partials(int64_t num_tokens, int64_t num_heads, int64_t num_keys) {
  const int64_t num_splits = count_splits(num_keys);
  return num_splits < 2 ? 0 : num_tokens * num_heads * num_splits;
}
/// A row's sums, its largest score and its sum of weights.
int64_t partial_bytes(int64_t head_dim) { return (head_dim + 2) * int64_t{sizeof(float)}; }

/// The part of a cache between the first and the last block of some sequences, as rows of head_dim elements.
struct CacheRows {
  int64_t first_block = INT64_MAX, last_block = -1;

  void add(std::span<const int32_t> ids) {
    const auto [least, largest] = std::ranges::minmax(ids);
    first_block = std::min<int64_t>(first_block, least);
    last_block = std::max<int64_t>(last_block, largest);
  }
  Range range(const KvLayerView& cache, uint64_t base) const {
    const int64_t block_bytes = cache.num_kv_heads * cache.block_tokens * cache.head_dim * dtype_bytes(cache.dtype);
    return {base + static_cast<uint64_t>(first_block * block_bytes),
            base + static_cast<uint64_t>((last_block + 1) * block_bytes)};
  }
};

/// Block ids of the tokens [first, end) of a sequence, of which there is one at least.
std::span<const int32_t> blocks_of(const KvLayerView& cache, const int32_t* table, int64_t first, int64_t end) {
  const int64_t first_block = first / cache.block_tokens;
  return {table + first_block, static_cast<std::size_t>((end - 1) / cache.block_tokens + 1 - first_block)};
}

/// Tells of writes to the rows of `sequences`, which mostly lie one behind the other.
class RowRuns {
 public:
  RowRuns(VulkanStream& stream, MatrixView out) : stream_(stream), out_(out) {}
  ~RowRuns() { flush(); }
  void add(int64_t first, int64_t count) {
    if (first != end_) {
      flush();
      first_ = first;
    }
    end_ = first + count;
  }

 private:
  void flush() {
    if (end_ > first_) stream_.writes(out_.rows_from(first_, end_ - first_));
  }

  VulkanStream& stream_;
  MatrixView out_;
  int64_t first_ = 0, end_ = 0;
};

/// Sequences that are attended with tiles of one size, and what their dispatch is made of.
struct TileClass {
  AttentionTile tile;
  std::vector<AttentionSequence> sequences;
  int64_t num_tasks = 0;
  int64_t first_partial = 0, end_partial = 0;
};

/// A call cut into work: what every sequence becomes, and room for partial sums.
class AttentionPlan {
 public:
  AttentionPlan(const AttentionArgs& args, const AttentionTiles& tiles_of)
      : args_(args),
        small_{.tile = tiles_of.small},
        large_{.tile = tiles_of.large},
        tables_(args.sequences.size() * kSequenceWords) {
    for (TileClass* tiles : {&small_, &large_}) {
      tiles->first_partial = num_partials_;
      for (std::size_t s = 0; s < args.sequences.size(); ++s) {
        const SequenceSpan& span = args.sequences[s];
        if (span.num_tokens > 0 && &class_of(span) == tiles) add(*tiles, span, args.block_tables[s]);
      }
      tiles->end_partial = num_partials_;
    }
    uint32_t* to = tables_.data();
    for (const TileClass* tiles : {&small_, &large_})
      to =
          std::copy_n(reinterpret_cast<const uint32_t*>(tiles->sequences.data()), tiles->sequences.size() * kSequenceWords, to);
  }

  const TileClass& small() const { return small_; }
  const TileClass& large() const { return large_; }
  int64_t num_partials() const { return num_partials_; }  // rows of partial sums
  int64_t num_reduced() const { return num_reduced_; }    // rows of the result that are made of them
  const CacheRows& cache_rows() const { return cache_rows_; }

  /// All sequences, the small tiles' first, and behind room for one of each span the block ids.
  std::span<const uint32_t> tables() const { return tables_; }
  std::size_t blocks_offset() const { return args_.sequences.size() * sizeof(AttentionSequence); }  // bytes

 private:
  static constexpr std::size_t kSequenceWords = sizeof(AttentionSequence) / sizeof(uint32_t);

  int64_t group() const { return args_.num_heads / args_.cache.num_kv_heads; }
  TileClass& class_of(const SequenceSpan& span) { return span.num_tokens * group() <= small_.tile.rows ? small_ : large_; }

  void add(TileClass& tiles, const SequenceSpan& span, const int32_t* table) {
    const int64_t num_keys = span.num_past + span.num_tokens;
    const int64_t num_tiles = (span.num_tokens * group() + tiles.tile.rows - 1) / tiles.tile.rows;
    const int64_t num_splits = count_splits(num_keys);
    const int64_t num_partials = count_partials(span.num_tokens, args_.num_heads, num_keys);
    const bool walks =
        num_tiles * args_.cache.num_kv_heads >= kBusyWorkgroups || num_partials_ + num_partials > kMaxPartialRows;
    const std::span<const int32_t> blocks = blocks_of(args_.cache, table, 0, num_keys);
    tiles.sequences.push_back({.first_row = u32(span.first_row),
                               .num_tokens = u32(span.num_tokens),
                               .num_past = u32(span.num_past),
                               .first_block = u32(std::ssize(tables_) - std::ssize(args_.sequences) * int64_t{kSequenceWords}),
                               .first_task = u32(tiles.num_tasks),
                               .num_splits = walks ? 0 : u32(num_splits),
                               .first_partial = u32(num_partials_),
                               .first_reduced = u32(num_reduced_)});
    tables_.insert(tables_.end(), blocks.begin(), blocks.end());
    cache_rows_.add(blocks);
    tiles.num_tasks += num_tiles * (walks ? 1 : num_splits);
    if (walks || num_partials == 0) return;
    num_partials_ += num_partials;
    num_reduced_ += span.num_tokens * args_.num_heads;
  }

  const AttentionArgs& args_;
  TileClass small_, large_;
  std::vector<uint32_t> tables_;
  CacheRows cache_rows_;
  int64_t num_partials_ = 0, num_reduced_ = 0;
};

void check_sizes(const AttentionArgs& args) {
  check_attention(args);
  FERRY_CHECK_LE(args.cache.head_dim, kMaxAttentionHeadDim);
}

}  // namespace

int64_t attention_scratch_bytes(const OpLimits& limits) {
  const int64_t num_partials = count_partials(limits.max_tokens, limits.num_heads, limits.max_keys);
  return std::min(num_partials, kMaxPartialRows) * partial_bytes(limits.head_dim);
}

void attention(VulkanStream& stream, const AttentionArgs& args) {
  check_sizes(args);
  const KvLayerView& cache = args.cache;
  const AttentionPlan plan(args, choose_attention_tiles(stream.traits(), args));
  if (plan.small().num_tasks + plan.large().num_tasks == 0) return;
  const uint64_t sequences = stream.upload_once(plan.tables());
  const std::size_t num_small = plan.small().sequences.size(), num_sequences = num_small + plan.large().sequences.size();
  const auto head_bytes = static_cast<uint64_t>(cache.head_dim) * sizeof(float);
  const auto num_partials = static_cast<uint64_t>(plan.num_partials());
  const uint64_t all_bytes = num_partials * static_cast<uint64_t>(partial_bytes(cache.head_dim));
  const uint64_t sums = num_partials == 0 ? 0 : stream.scratch(all_bytes), stats = sums + num_partials * head_bytes;
  AttentionPush push{.q = address_of(args.q),
                     .keys = address_of(cache.keys),
                     .values = address_of(cache.values),
                     .result = address_of(args.out),
                     .sequences = sequences,
                     .blocks = sequences + plan.blocks_offset(),
                     .partial_sums = sums,
                     .partial_stats = stats,
                     .q_stride = stride_of(args.q),
                     .result_stride = stride_of(args.out),
                     .num_heads = u32(args.num_heads),
                     .num_kv_heads = u32(cache.num_kv_heads),
                     .block_tokens = u32(cache.block_tokens),
                     .scale = 1.0f / std::sqrt(static_cast<float>(cache.head_dim))};
  for (const TileClass* tiles : {&plan.small(), &plan.large()}) {
    push.num_sequences = u32(std::ssize(tiles->sequences));
    push.num_tasks = u32(tiles->num_tasks);
    if (push.num_tasks == 0) continue;
    stream.reads(args.q);
    stream.reads(plan.cache_rows().range(cache, push.keys));
    stream.reads(plan.cache_rows().range(cache, push.values));
    {
      RowRuns runs(stream, args.out);
      for (const auto& sequence : tiles->sequences) runs.add(sequence.first_row, sequence.num_tokens);
    }
    const auto first = static_cast<uint64_t>(tiles->first_partial), end = static_cast<uint64_t>(tiles->end_partial);
    if (end > first) {
      stream.writes(Range{stats + first * 8, stats + end * 8});
      stream.writes(Range{sums + first * head_bytes, sums + end * head_bytes});
    }
    stream.dispatch(tiles->tile.kernel, push, grid_of_rows(tiles->num_tasks * cache.num_kv_heads));
    push.sequences += tiles->sequences.size() * sizeof(AttentionSequence);
  }
  if (plan.num_reduced() == 0) return;
  stream.reads(Range{sums, sums + all_bytes});
  stream.writes(args.out);
  const AttentionReducePush reduce{.partial_sums = sums,
                                   .partial_stats = stats,
                                   .result = push.result,
                                   .sequences = sequences,
                                   .result_stride = push.result_stride,
                                   .num_sequences = u32(static_cast<int64_t>(num_sequences)),
                                   .num_rows = u32(plan.num_reduced()),
                                   .num_heads = push.num_heads,
                                   .head_dim = u32(cache.head_dim)};
  const int64_t parts = (cache.head_dim + kReduceInvocations - 1) / kReduceInvocations;
  stream.dispatch({find_shader("attention_reduce", cache.dtype), {kReduceInvocations}}, reduce,
                  grid_of_rows(plan.num_reduced() * parts));
}

void kv_append(VulkanStream& stream, const KvAppendArgs& args) {
  const KvLayerView& cache = args.cache;
  FERRY_CHECK(args.k.dtype == cache.dtype && args.v.dtype == cache.dtype);
  FERRY_CHECK_EQ(args.k.cols, cache.num_kv_heads * cache.head_dim);
  FERRY_CHECK_EQ(args.v.cols, args.k.cols);
  FERRY_CHECK_EQ(args.sequences.size(), args.block_tables.size());
  std::vector<KvPlace> places;
  CacheRows rows;
  for (std::size_t s = 0; s < args.sequences.size(); ++s) {
    const SequenceSpan& span = args.sequences[s];
    if (span.num_tokens == 0) continue;
    rows.add(blocks_of(cache, args.block_tables[s], span.num_past, span.num_past + span.num_tokens));
    for (int64_t t = 0; t < span.num_tokens; ++t) {
      const int64_t position = span.num_past + t, block = args.block_tables[s][position / cache.block_tokens];
      places.push_back({.row = u32(span.first_row + t),
                        .place = u32(block * cache.num_kv_heads * cache.block_tokens + position % cache.block_tokens)});
    }
  }
  if (places.empty()) return;
  const auto bytes = static_cast<uint32_t>(dtype_bytes(cache.dtype));
  const KvAppendPush push{.k = address_of(args.k),
                          .v = address_of(args.v),
                          .keys = address_of(cache.keys),
                          .values = address_of(cache.values),
                          .places = stream.upload_once(std::span<const KvPlace>(places)),
                          .k_stride = stride_of(args.k) * bytes,
                          .v_stride = stride_of(args.v) * bytes,
                          .num_rows = u32(std::ssize(places)),
                          .num_kv_heads = u32(cache.num_kv_heads),
                          .head_bytes = u32(cache.head_dim) * bytes,
                          .block_tokens = u32(cache.block_tokens)};
  const bool aligned = is_aligned(push.k | push.v | push.keys | push.values | push.k_stride | push.v_stride | push.head_bytes);
  stream.reads(args.k);
  stream.reads(args.v);
  stream.writes(rows.range(cache, push.keys));
  stream.writes(rows.range(cache, push.values));
  const char* shader = aligned ? "kv_append.16" : bytes == 4 ? "kv_append.4" : "kv_append.2";
  stream.dispatch({find_shader(shader), {kAppendInvocations}}, push, grid_of_rows(push.num_rows));
}

}  // namespace ferry::vulkan
