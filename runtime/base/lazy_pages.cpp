#include "runtime/base/lazy_pages.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>

namespace ferry {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::size_t in_huge_pages(std::size_t size) { return (size + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes; }

/// What is mapped.
struct Mapped {
  std::mutex mutex;
  std::map<std::byte*, std::size_t> bytes;  // by where it begins
};
Mapped& all_mapped() {
  static Mapped mapped;
  return mapped;
}

/// Of `size` bytes at `data`, in whole pages.
std::size_t untouched_of(std::byte* data, std::size_t size) {
  static const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::array<unsigned char, 4096> is_present;  // by page; bit 0
  std::size_t untouched = 0;
  while (size > 0) {
    const std::size_t bytes = std::min(size, is_present.size() * page_bytes);
    if (mincore(data, bytes, is_present.data()) != 0) return 0;
    const auto num_pages = static_cast<std::ptrdiff_t>((bytes + page_bytes - 1) / page_bytes);
    const auto num_present =
        std::count_if(is_present.begin(), is_present.begin() + num_pages, [](unsigned char p) { return (p & 1U) != 0; });
    untouched += static_cast<std::size_t>(num_pages - num_present) * page_bytes;
    data += bytes;
    size -= bytes;
  }
  return untouched;
}

}  // namespace

std::byte* map_lazy_pages(std::size_t size) {
  const std::size_t bytes = in_huge_pages(size), mapped = bytes + kHugePageBytes;
  if (bytes < size || mapped < bytes) throw std::bad_alloc();
  void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  const auto address = reinterpret_cast<uintptr_t>(start);
  const std::size_t before = in_huge_pages(address) - address, behind = mapped - before - bytes;
  std::byte* data = static_cast<std::byte*>(start) + before;
  if (before > 0) munmap(start, before);
  if (behind > 0) munmap(data + bytes, behind);
  madvise(data, bytes, MADV_HUGEPAGE);  // a hint
  ASAN_POISON_MEMORY_REGION(data + size, bytes - size);
  Mapped& all = all_mapped();
  const std::scoped_lock lock(all.mutex);
  all.bytes.emplace(data, bytes);
  return data;
}

void unmap_lazy_pages(std::byte* data, std::size_t size) noexcept {
  Mapped& all = all_mapped();
  {
    const std::scoped_lock lock(all.mutex);
    all.bytes.erase(data);
  }
  ASAN_UNPOISON_MEMORY_REGION(data, in_huge_pages(size));
  munmap(data, in_huge_pages(size));
}

int64_t untouched_bytes() {
  Mapped& all = all_mapped();
  const std::scoped_lock lock(all.mutex);
  std::size_t untouched = 0;
  for (const auto& [data, bytes] : all.bytes) untouched += untouched_of(data, bytes);
  return static_cast<int64_t>(untouched);
}

}  // namespace ferry
