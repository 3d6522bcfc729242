#include "runtime/schedule/block_allocator.h"

#include <limits>

#include "runtime/base/check.h"

namespace ferry {

BlockAllocator::BlockAllocator(int64_t num_blocks) {
  FERRY_CHECK_GE(num_blocks, 0);
  FERRY_CHECK_LE(num_blocks, std::numeric_limits<int32_t>::max());
  in_use_.assign(static_cast<std::size_t>(num_blocks), false);
  free_.reserve(static_cast<std::size_t>(num_blocks));
  for (int64_t block = num_blocks - 1; block >= 0; --block) free_.push_back(static_cast<int32_t>(block));
}

std::optional<std::vector<int32_t>> BlockAllocator::allocate(int64_t count) {
  FERRY_CHECK_GE(count, 0);
  if (count > num_free()) return std::nullopt;
  std::vector<int32_t> blocks(free_.rbegin(), free_.rbegin() + count);
  free_.resize(free_.size() - static_cast<std::size_t>(count));
  for (const int32_t block : blocks) in_use_[static_cast<std::size_t>(block)] = true;
  return blocks;
}

void BlockAllocator::release(std::span<const int32_t> blocks) {
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    const int32_t block = *it;
    FERRY_CHECK(block >= 0 && block < num_total()) << "block " << block << " of " << num_total();
    FERRY_CHECK(in_use_[static_cast<std::size_t>(block)]) << "block " << block << " released twice";
    in_use_[static_cast<std::size_t>(block)] = false;
    free_.push_back(block);
  }
}

}  // namespace ferry
