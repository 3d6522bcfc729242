#include "kernels/vulkan/ops/attention_kernels.h"

#include <algorithm>
#include <bit>

#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/shaders/push_attention.h"

namespace ferry::vulkan {
namespace {

/// A tile of attention.comp, of 4 * quads rows. A slice is what is staged together; with these, 32 KiB of shared memory hold
/// the tile. An invocation has `columns` of values for a number of row quads, so that a workgroup has all of them.
AttentionTile plain_tile(const AttentionArgs& args, uint32_t quads, uint32_t slice) {
  const KvLayerView& cache = args.cache;
  const auto head_dim = u32(cache.head_dim), padded_dim = std::bit_ceil(head_dim);
  const uint32_t sums = std::max(1u, quads * padded_dim / kAttentionInvocations);
  const uint32_t columns = std::min(4u, sums);
  const auto bytes = static_cast<uint64_t>(dtype_bytes(cache.dtype));
  const bool aligned = is_aligned(args.q) && is_aligned(head_dim * bytes) && is_aligned(address_of(cache.keys)) &&
                       is_aligned(address_of(cache.values));
  return {4 * quads,
          {find_shader("attention", cache.dtype),
           {kAttentionInvocations, head_dim, quads, slice, std::bit_ceil((head_dim + columns - 1) / columns), columns,
            sums / columns, aligned ? 1u : 0u}}};
}

constexpr uint32_t kSide = 16;                            // of the fragments of attention_matrix.comp
constexpr uint32_t kSplitFragments = kSplitKeys / kSide;  // as many subgroups has a workgroup
constexpr uint32_t kMostMatrixDim = 256;                  // of a head whose sums stay in registers

/// Fragments of columns that a subgroup has.
uint32_t column_fragments(const KvLayerView& cache) {
  return (u32(cache.head_dim) / kSide + kSplitFragments - 1) / kSplitFragments;
}

/// Of shared memory, as attention_matrix.comp lays it out.
uint32_t matrix_shared_bytes(const KvLayerView& cache, uint32_t row_fragments) {
  const uint32_t rows = kSide * row_fragments;
  const uint32_t row_units = u32(cache.head_dim) / 8 + 1 + kSplitKeys / 4 + 1 + 1;  // of 16 bytes: a query, scores, factors
  return 16 * (rows * row_units + kSplitKeys * (2 * column_fragments(cache) + 1));
}

/// Whether the device's matrices can attend such a cache: decided by what is the same for all its rows.
bool has_matrices(const DeviceTraits& traits, const KvLayerView& cache) {
  const uint32_t invocations = traits.subgroup_size * kSplitFragments;
  return cache.dtype == DType::kBF16 && traits.bf16 == Fragment{kSide, kSide, kSide} && traits.subgroup_size >= kSide &&
         invocations <= traits.max_invocations && cache.head_dim % kSide == 0 && cache.head_dim <= kMostMatrixDim &&
         cache.block_tokens % kSide == 0 && is_aligned(address_of(cache.keys)) && is_aligned(address_of(cache.values)) &&
         matrix_shared_bytes(cache, 1) <= traits.shared_bytes;
}

constexpr uint32_t kAhead = 8;  // pieces of a split's keys, or of its values, that are on their way

/// A tile of attention_matrix.comp.
AttentionTile matrix_tile(const DeviceTraits& traits, const AttentionArgs& args, uint32_t row_fragments) {
  const KvLayerView& cache = args.cache;
  const bool aligned = is_aligned(args.q) && is_aligned(args.out);
  return {kSide * row_fragments,
          {find_shader("attention_matrix", cache.dtype),
           {kSplitFragments * traits.subgroup_size, u32(cache.head_dim), traits.subgroup_size, row_fragments,
            column_fragments(cache), kAhead, aligned ? 1u : 0u}}};
}

}  // namespace

AttentionTiles choose_attention_tiles(const DeviceTraits& traits, const AttentionArgs& args) {
  if (!has_matrices(traits, args.cache)) return {plain_tile(args, 2, 32), plain_tile(args, 8, 16)};
  const uint32_t large = matrix_shared_bytes(args.cache, 2) <= traits.shared_bytes ? 2 : 1;
  return {matrix_tile(traits, args, 1), matrix_tile(traits, args, large)};
}

}  // namespace ferry::vulkan
