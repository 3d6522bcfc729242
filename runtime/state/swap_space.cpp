#include "runtime/state/swap_space.h"

#include "kernels/stream.h"
#include "runtime/base/check.h"
#include "runtime/base/memory_use.h"

namespace ferry {

SwapSpace::SwapSpace(KvCache& cache, Stream& stream, int64_t num_blocks)
    : cache_(cache),
      stream_(stream),
      block_bytes_(KvCache::bytes_per_block(cache.options())),
      blocks_(static_cast<std::size_t>(num_blocks)) {}

void SwapSpace::save(int64_t cache_block, int64_t swap_block) {
  Storage& block = blocks_.at(static_cast<std::size_t>(swap_block));
  if (block.size() == 0 && block_bytes_ > 0) {
    const MemoryUseScope use(MemoryUse::kSwapSpace);
    block = host_memory().allocate(static_cast<std::size_t>(block_bytes_));
    num_bytes_ += block_bytes_;
  }
  cache_.read_block(stream_, cache_block, block.address());
  pending_.add(stream_, block_bytes_);
}

void SwapSpace::restore(int64_t swap_block, int64_t cache_block) {
  const Storage& block = blocks_.at(static_cast<std::size_t>(swap_block));
  FERRY_CHECK_EQ(static_cast<int64_t>(block.size()), block_bytes_) << ": block " << swap_block << " was never saved";
  cache_.write_block(stream_, cache_block, block.address());
  pending_.add(stream_, block_bytes_);
}

}  // namespace ferry
