#pragma once

#include <cstdint>
#include <vector>

#include "runtime/state/kv_cache.h"
#include "runtime/state/pending_copies.h"

namespace ferry {

/// Blocks of a KV cache on the host, for keys and values of sequences that are preempted: the scheduler's ids index it. A
/// block's memory is allocated when it is first used, and kept: what is never needed takes none.
///
/// What is copied comes back to the bit. Not thread-safe.
class SwapSpace {
 public:
  /// For blocks of `cache`, which outlives it with the stream.
  SwapSpace(KvCache& cache, Stream& stream, int64_t num_blocks);

  /// Copies a block of the cache to one of here. It is here once the stream was waited for.
  /// Throws std::bad_alloc.
  void save(int64_t cache_block, int64_t swap_block);
  /// And back. What was saved must be here.
  void restore(int64_t swap_block, int64_t cache_block);

  /// Bytes of the blocks that were used so far.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  KvCache& cache_;
  Stream& stream_;
  const int64_t block_bytes_;
  int64_t num_bytes_ = 0;
  PendingCopies pending_;
  std::vector<Storage> blocks_;  // [num_blocks]
};

}  // namespace ferry
