#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

namespace ferry {

/// Memory for packed weights, handed out from a few large regions: neighbours share 2 MiB pages, so that a model of many
/// matrices smaller than a page neither wastes memory nor streams through small pages (which costs a quarter of the bandwidth).
/// Thread-safe.
class WeightArena {
 public:
  /// `bytes` zeroed bytes at a 64-byte boundary; memory is taken when it is first written. The region lives until the last of
  /// its pieces is gone. Throws Error{kResourceExhausted} if the system refuses.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<std::byte> region_;  // the one that pieces come from
  std::size_t region_bytes_ = 0;
  std::size_t used_bytes_ = 0;
};

}  // namespace ferry
