#include "kernels/cpu/weight_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/free_extents.h"
#include "runtime/base/error.h"
#include "runtime/base/memory_use.h"

namespace ferry {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kRegionBytes = std::size_t{256} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Address space that begins at a huge page, of which some pieces are in use. One thread at a time.
class WeightRegion {
 public:
  /// In use, and what of it somebody may have written before: in its first page and in its last one, since others are zero.
  struct Taken {
    FreeExtents::Taken place;
    std::array<Extent, 2> written;
  };

  WeightRegion(std::size_t bytes, MemoryUse use) : free_(bytes), written_(bytes / kHugePageBytes, 0) {
    const std::size_t mapped = bytes + kHugePageBytes;
    void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) {
      throw Error(ErrorCode::kResourceExhausted, "no " + std::to_string(mapped) + " bytes of address space for packed weights");
    }
    auto* aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(start), kHugePageBytes));
    madvise(aligned, bytes, MADV_HUGEPAGE);
    memory_ = {aligned, [start, mapped](std::byte* data) {
                 forget_pages(data);
                 munmap(start, mapped);
               }};
    note_pages(aligned, bytes, use, false);
  }

  std::byte* data() const { return memory_.get(); }
  std::size_t num_bytes() const { return free_.num_bytes(); }
  std::size_t used_bytes() const { return free_.used_bytes(); }
  std::size_t page_bytes() const;

  std::optional<Taken> take(std::size_t size);
  void give_back(FreeExtents::Taken place) noexcept;

 private:
  std::array<Extent, 2> mark_written(Extent extent);
  void drop_pages(Extent hole, Extent among) noexcept;

  FreeExtents free_;
  std::vector<std::size_t> written_;  // by huge page: what may not be zero ends here, counted from the page's begin
  std::shared_ptr<std::byte> memory_;
};

std::optional<WeightRegion::Taken> WeightRegion::take(std::size_t size) {
  std::optional<FreeExtents::Taken> place = free_.take(size);
  if (!place) return std::nullopt;
  const std::array<Extent, 2> written = mark_written(place->extent());
  return Taken{std::move(*place), written};
}

std::array<Extent, 2> WeightRegion::mark_written(Extent extent) {
  std::array<Extent, 2> written;
  const std::size_t first = extent.begin / kHugePageBytes, last = (extent.end - 1) / kHugePageBytes;
  for (std::size_t page = first; page <= last; ++page) {
    const std::size_t start = page * kHugePageBytes;
    const Extent part{std::max(extent.begin, start), std::min(extent.end, start + kHugePageBytes)};
    const std::size_t end = std::min(part.end, start + written_[page]);
    if (part.begin < end) written[page == first ? 0 : 1] = {part.begin, end};
    written_[page] = std::max(written_[page], part.end - start);
  }
  return written;
}

void WeightRegion::give_back(FreeExtents::Taken place) noexcept {
  const Extent piece = place.extent();
  drop_pages(free_.give_back(std::move(place)), piece);
}

/// Whole pages in `hole` that have a part of `among`: zero from now on. A system that does not take them keeps zeros.
void WeightRegion::drop_pages(Extent hole, Extent among) noexcept {
  const std::size_t first = std::max(round_up(hole.begin, kHugePageBytes), among.begin / kHugePageBytes * kHugePageBytes);
  const std::size_t end = std::min(hole.end / kHugePageBytes * kHugePageBytes, round_up(among.end, kHugePageBytes));
  if (first >= end) return;
  if (madvise(data() + first, end - first, MADV_DONTNEED) == 0) {
    note_dropped(data() + first, end - first);
  } else {
    std::memset(data() + first, 0, end - first);
  }
  const auto page = [&](std::size_t at) { return written_.begin() + static_cast<std::ptrdiff_t>(at / kHugePageBytes); };
  std::fill(page(first), page(end), 0);
}

std::size_t WeightRegion::page_bytes() const {
  std::size_t free_bytes = 0;
  for (const auto& [begin, end] : free_.holes()) {
    const std::size_t first = round_up(begin, kHugePageBytes), last = end / kHugePageBytes * kHugePageBytes;
    if (first < last) free_bytes += last - first;
  }
  return num_bytes() - free_bytes;
}

}  // namespace

class WeightArena::Regions {
 public:
  explicit Regions(MemoryUse use) : memory_use_(use) {}

  struct Taken {
    WeightRegion* region;
    WeightRegion::Taken in_region;
  };
  Taken take(std::size_t size) {
    const std::scoped_lock lock(mutex_);
    for (const auto& region : regions_) {
      if (std::optional<WeightRegion::Taken> taken = region->take(size)) return {region.get(), std::move(*taken)};
    }
    const std::size_t wanted = round_up(std::max(size, kRegionBytes), kHugePageBytes);
    WeightRegion& region = *regions_.emplace_back(std::make_unique<WeightRegion>(wanted, memory_use_));
    return {&region, std::move(*region.take(size))};
  }

  void give_back(WeightRegion& region, FreeExtents::Taken place) noexcept {
    const std::scoped_lock lock(mutex_);
    region.give_back(std::move(place));
    if (region.used_bytes() == 0) std::erase_if(regions_, [&](const auto& other) { return other.get() == &region; });
  }

  Use use() const {
    const std::scoped_lock lock(mutex_);
    Use use;
    for (const auto& region : regions_) {
      use.piece_bytes += region->used_bytes();
      use.page_bytes += region->page_bytes();
      use.region_bytes += region->num_bytes();
    }
    return use;
  }

 private:
  const MemoryUse memory_use_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<WeightRegion>> regions_;  // the oldest first
};

/// Goes back to its region.
struct WeightArena::Piece {
  Piece(std::shared_ptr<Regions> owner, std::size_t size) : regions(std::move(owner)), taken(regions->take(size)) {
    for (const Extent& part : taken.in_region.written) std::memset(taken.region->data() + part.begin, 0, part.size());
  }
  ~Piece() { regions->give_back(*taken.region, std::move(taken.in_region.place)); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  std::byte* data() const { return taken.region->data() + taken.in_region.place.extent().begin; }

  const std::shared_ptr<Regions> regions;
  Regions::Taken taken;
};

WeightArena::WeightArena(MemoryUse use) : regions_(std::make_shared<Regions>(use)) {}

WeightArena::~WeightArena() = default;

std::shared_ptr<std::byte> WeightArena::allocate(std::size_t bytes) {
  const auto piece = std::make_shared<Piece>(regions_, round_up(std::max<std::size_t>(bytes, 1), kAlignment));
  return {piece, piece->data()};
}

WeightArena::Use WeightArena::use() const { return regions_->use(); }

}  // namespace ferry
