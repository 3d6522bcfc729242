#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ferry {

/// Hands out the ids 0 ‥ num_blocks-1 of the KV cache's blocks. It knows ids only, not the memory behind them.
///
/// Not thread-safe: the scheduler owns it. allocate() makes the one vector that it returns, release() allocates nothing.
class BlockAllocator {
 public:
  /// `num_blocks` >= 0.
  explicit BlockAllocator(int64_t num_blocks);

  /// `count` >= 0 blocks, or nullopt (and no change) if fewer are free.
  std::optional<std::vector<int32_t>> allocate(int64_t count);

  /// Gives blocks back. An id that is out of range or already free is our bug and aborts.
  void release(std::span<const int32_t> blocks);

  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_total() const { return static_cast<int64_t>(in_use_.size()); }
  int64_t num_used() const { return num_total() - num_free(); }

 private:
  std::vector<int32_t> free_;  // a stack: the block given back last is the warmest and goes out first
  std::vector<bool> in_use_;   // [num_blocks]
};

}  // namespace ferry
