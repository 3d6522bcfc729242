#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ferry {

/// Counts who holds the blocks 0 ‥ num_blocks-1 of a cache: each has as many references as holders and is free when the last
/// one lets go and nobody keeps it. A block that is kept without a holder is idle: what is in it may be of use again. It knows
/// ids only, not the memory behind them.
///
/// Not thread-safe: the scheduler owns it. Allocates nothing after construction but what the caller's vectors need.
class BlockPool {
 public:
  /// `num_blocks` >= 0.
  explicit BlockPool(int64_t num_blocks);

  /// Appends `count` >= 0 free blocks to `blocks`, each with one reference; false, and no change, if fewer are free.
  [[nodiscard]] bool allocate(int64_t count, std::vector<int32_t>& blocks);

  /// One more holder of blocks that have one or are kept. An id that is out of range or free is our bug and aborts; so below.
  void share(std::span<const int32_t> blocks);
  /// One holder fewer.
  void release(std::span<const int32_t> blocks);

  /// Blocks that have a holder, and are not kept yet, are kept.
  void keep(std::span<const int32_t> blocks);
  /// And no longer.
  void let_go(std::span<const int32_t> blocks);

  int64_t num_references(int32_t block) const;  // holders
  bool is_idle(int32_t block) const { return num_references(block) == 0 && is_kept_[static_cast<std::size_t>(block)]; }
  int64_t num_idle() const { return num_idle_; }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_total() const { return static_cast<int64_t>(num_references_.size()); }
  /// With a holder.
  int64_t num_used() const { return num_total() - num_free() - num_idle_; }

 private:
  int32_t& held(int32_t block);

  std::vector<int32_t> free_;            // a stack: the block given back last is the warmest and goes out first
  std::vector<int32_t> num_references_;  // [num_blocks]
  std::vector<bool> is_kept_;            // [num_blocks]
  int64_t num_idle_ = 0;
};

}  // namespace ferry
