#include "runtime/schedule/block_pool.h"

#include <limits>

#include "runtime/base/check.h"

namespace ferry {

BlockPool::BlockPool(int64_t num_blocks) {
  FERRY_CHECK_GE(num_blocks, 0);
  FERRY_CHECK_LE(num_blocks, std::numeric_limits<int32_t>::max());
  num_references_.assign(static_cast<std::size_t>(num_blocks), 0);
  is_kept_.assign(static_cast<std::size_t>(num_blocks), false);
  free_.reserve(static_cast<std::size_t>(num_blocks));
  for (int64_t block = num_blocks - 1; block >= 0; --block) free_.push_back(static_cast<int32_t>(block));
}

bool BlockPool::allocate(int64_t count, std::vector<int32_t>& blocks) {
  FERRY_CHECK_GE(count, 0);
  if (count > num_free()) return false;
  blocks.insert(blocks.end(), free_.rbegin(), free_.rbegin() + count);
  for (auto block = free_.end() - count; block != free_.end(); ++block) num_references_[static_cast<std::size_t>(*block)] = 1;
  free_.resize(free_.size() - static_cast<std::size_t>(count));
  return true;
}

void BlockPool::share(std::span<const int32_t> blocks) {
  for (const int32_t block : blocks) {
    if (is_idle(block)) {
      num_references_[static_cast<std::size_t>(block)] = 1;
      --num_idle_;
    } else {
      ++held(block);
    }
  }
}

void BlockPool::release(std::span<const int32_t> blocks) {
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    if (--held(*it) > 0) continue;
    if (is_kept_[static_cast<std::size_t>(*it)]) {
      ++num_idle_;
    } else {
      free_.push_back(*it);
    }
  }
}

void BlockPool::keep(std::span<const int32_t> blocks) {
  for (const int32_t block : blocks) {
    FERRY_CHECK(held(block) >= 1 && !is_kept_[static_cast<std::size_t>(block)]) << "block " << block << " is kept twice";
    is_kept_[static_cast<std::size_t>(block)] = true;
  }
}

void BlockPool::let_go(std::span<const int32_t> blocks) {
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    const bool was_idle = is_idle(*it);
    FERRY_CHECK(is_kept_[static_cast<std::size_t>(*it)]) << "block " << *it << " is not kept";
    is_kept_[static_cast<std::size_t>(*it)] = false;
    if (!was_idle) continue;
    --num_idle_;
    free_.push_back(*it);
  }
}

int64_t BlockPool::num_references(int32_t block) const {
  FERRY_CHECK(block >= 0 && block < num_total()) << "block " << block << " of " << num_total();
  return num_references_[static_cast<std::size_t>(block)];
}

int32_t& BlockPool::held(int32_t block) {
  FERRY_CHECK_GE(num_references(block), 1) << ": block " << block << " is free";
  return num_references_[static_cast<std::size_t>(block)];
}

}  // namespace ferry
