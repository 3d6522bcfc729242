#include "kernels/cpu/weight_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kRegionBytes = std::size_t{256} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// A region that begins at a huge page. Only address space is taken here.
std::shared_ptr<std::byte> map_region(std::size_t bytes) {
  const std::size_t mapped = bytes + kHugePageBytes;
  void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) {
    throw Error(ErrorCode::kResourceExhausted, "no " + std::to_string(mapped) + " bytes of address space for packed weights");
  }
  auto* aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(start), kHugePageBytes));
  madvise(aligned, bytes, MADV_HUGEPAGE);
  return {aligned, [start, mapped](std::byte*) { munmap(start, mapped); }};
}

}  // namespace

std::shared_ptr<std::byte> WeightArena::allocate(std::size_t bytes) {
  const std::size_t size = round_up(bytes, kAlignment);
  const std::scoped_lock lock(mutex_);
  if (region_ == nullptr || used_bytes_ + size > region_bytes_) {
    const std::size_t wanted = round_up(std::max(size, kRegionBytes), kHugePageBytes);
    std::shared_ptr<std::byte> region = map_region(wanted);
    if (size >= kRegionBytes) return region;  // has it to itself; the open region stays open
    region_ = std::move(region);
    region_bytes_ = wanted;
    used_bytes_ = 0;
  }
  std::byte* piece = region_.get() + used_bytes_;
  used_bytes_ += size;
  return {region_, piece};
}

}  // namespace ferry
