#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace ferry {

struct KvCacheOptions {
  int num_layers = 0;         // full-attention layers only; >= 0
  int64_t num_blocks = 0;     // >= 1
  int64_t block_tokens = 16;  // tokens a block; >= 1
  int64_t num_kv_heads = 0;   // >= 1
  int64_t head_dim = 0;       // >= 1
  DType dtype = DType::kF32;  // of the activations, or i8: codes
};

/// Keys and values of the full-attention layers, paged, as values or codes of 8 bits: a block holds block_tokens tokens of one
/// sequence in every layer, and the scheduler's block ids index it. Allocated and zeroed at construction; stale contents of a
/// reused block are never read, because attention looks only at the tokens that a sequence has appended.
///
/// Layers are counted among the full-attention layers, not among all layers of the model.
class KvCache {
 public:
  /// Throws std::bad_alloc when the memory is not there.
  explicit KvCache(const KvCacheOptions& options, Memory& memory = host_memory());

  /// Borrowed; valid as long as the cache.
  KvLayerView layer(int layer_idx);

  /// Copies a block, keys and values of all layers in bytes_per_block bytes, to or from other memory.
  void read_block(Stream& stream, int64_t block, Address<std::byte> to) const;
  void write_block(Stream& stream, int64_t block, Address<const std::byte> from);

  const KvCacheOptions& options() const { return options_; }

  /// Bytes of one block in all layers, keys and values. num_blocks does not matter.
  static int64_t bytes_per_block(const KvCacheOptions& options);

 private:
  struct Layer {
    Storage keys;    // [num_blocks, num_kv_heads] runs (kernels/kv_layout.h)
    Storage values;  // same
  };
  int64_t offset_of(int64_t block) const;

  KvCacheOptions options_;
  std::vector<Layer> layers_;  // [num_layers]
};

}  // namespace ferry
