#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ferry {

/// Counts who holds the blocks 0 ‥ num_blocks-1 of a cache: each has as many references as holders and is free when the last
/// one lets go. It knows ids only, not the memory behind them.
///
/// Not thread-safe: the scheduler owns it. Allocates nothing after construction but what the caller's vectors need.
class BlockPool {
 public:
  /// `num_blocks` >= 0.
  explicit BlockPool(int64_t num_blocks);

  /// Appends `count` >= 0 free blocks to `blocks`, each with one reference; false, and no change, if fewer are free.
  [[nodiscard]] bool allocate(int64_t count, std::vector<int32_t>& blocks);

  /// One more holder of blocks that have one. An id that is out of range or free is our bug and aborts; so below.
  void share(std::span<const int32_t> blocks);
  /// One holder fewer.
  void release(std::span<const int32_t> blocks);

  int64_t num_references(int32_t block) const;
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_total() const { return static_cast<int64_t>(num_references_.size()); }
  int64_t num_used() const { return num_total() - num_free(); }

 private:
  int32_t& held(int32_t block);

  std::vector<int32_t> free_;            // a stack: the block given back last is the warmest and goes out first
  std::vector<int32_t> num_references_;  // [num_blocks]
};

}  // namespace ferry
