#pragma once

#include <cstddef>
#include <memory>

#include "runtime/base/memory_use.h"

namespace ferry {

/// Memory for packed weights, handed out from a few large regions: neighbours share 2 MiB pages, so that a model of many
/// matrices smaller than a page neither wastes memory nor streams through small pages (which costs a quarter of the bandwidth).
///
/// What a piece leaves behind is used again (free_extents.h), and pages of which no piece has any part go back to the system at
/// once: of pieces of one size no more pages are taken than held the most that was ever in use at the same time.
///
/// Any thread may call it, and drop pieces.
class WeightArena {
 public:
  /// Its memory counts for `use` (runtime/base/memory_use.h).
  explicit WeightArena(MemoryUse use = MemoryUse::kWeights);
  ~WeightArena();
  WeightArena(const WeightArena&) = delete;
  WeightArena& operator=(const WeightArena&) = delete;

  /// `bytes` zeroed bytes at a 64-byte boundary; memory is taken when it is first written, and goes back with the last owner,
  /// who may outlive the arena. Throws Error{kResourceExhausted} if the system refuses.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);

  struct Use {
    std::size_t piece_bytes = 0;   // of pieces that somebody holds, in whole lines of 64
    std::size_t page_bytes = 0;    // of pages of which one of them has a part: what may be resident
    std::size_t region_bytes = 0;  // of address space
  };
  Use use() const;

 private:
  class Regions;
  struct Piece;

  std::shared_ptr<Regions> regions_;  // pieces own it, too
};

}  // namespace ferry
