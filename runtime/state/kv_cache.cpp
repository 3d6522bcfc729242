#include "runtime/state/kv_cache.h"

#include "kernels/stream.h"
#include "runtime/base/memory_use.h"

namespace ferry {
namespace {

int64_t layer_block_bytes(const KvCacheOptions& options) {
  return options.num_kv_heads * kv_run_bytes(options.dtype, options.block_tokens, options.head_dim);
}

}  // namespace

KvCache::KvCache(const KvCacheOptions& options, Memory& memory) : options_(options) {
  FERRY_CHECK_GE(options.num_layers, 0);
  FERRY_CHECK_GE(options.num_blocks, 1);
  FERRY_CHECK(options.block_tokens >= 1 && options.num_kv_heads >= 1 && options.head_dim >= 1)
      << options.block_tokens << " tokens a block, " << options.num_kv_heads << " heads of " << options.head_dim;
  const auto bytes = static_cast<std::size_t>(options.num_blocks * layer_block_bytes(options));
  const MemoryUseScope use(MemoryUse::kKvCache);
  layers_.reserve(static_cast<std::size_t>(options.num_layers));
  for (int i = 0; i < options.num_layers; ++i) layers_.push_back({memory.allocate(bytes), memory.allocate(bytes)});
}

KvLayerView KvCache::layer(int layer_idx) {
  FERRY_CHECK(layer_idx >= 0 && layer_idx < options_.num_layers) << "layer " << layer_idx << " of " << options_.num_layers;
  Layer& layer = layers_[static_cast<std::size_t>(layer_idx)];
  return {.keys = layer.keys.address(),
          .values = layer.values.address(),
          .dtype = options_.dtype,
          .num_kv_heads = options_.num_kv_heads,
          .block_tokens = options_.block_tokens,
          .head_dim = options_.head_dim};
}

void KvCache::read_block(Stream& stream, int64_t block, Address<std::byte> to) const {
  const int64_t offset = offset_of(block), size = layer_block_bytes(options_);
  for (const Layer& layer : layers_) {
    for (const Storage* half : {&layer.keys, &layer.values}) {
      stream.copy(half->address() + offset, to, static_cast<std::size_t>(size));
      to = to + size;
    }
  }
}

void KvCache::write_block(Stream& stream, int64_t block, Address<const std::byte> from) {
  const int64_t offset = offset_of(block), size = layer_block_bytes(options_);
  for (Layer& layer : layers_) {
    for (Storage* half : {&layer.keys, &layer.values}) {
      stream.copy(from, half->address() + offset, static_cast<std::size_t>(size));
      from = from + size;
    }
  }
}

/// In the keys and in the values of every layer.
int64_t KvCache::offset_of(int64_t block) const {
  FERRY_CHECK(block >= 0 && block < options_.num_blocks) << "block " << block << " of " << options_.num_blocks;
  return block * layer_block_bytes(options_);
}

int64_t KvCache::bytes_per_block(const KvCacheOptions& options) { return 2 * options.num_layers * layer_block_bytes(options); }

}  // namespace ferry
