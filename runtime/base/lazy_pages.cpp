#include "runtime/base/lazy_pages.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "runtime/base/memory_use.h"

namespace ferry {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::size_t in_huge_pages(std::size_t size) { return (size + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes; }

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
  note_pages(data, bytes, current_memory_use(), true);
  return data;
}

void unmap_lazy_pages(std::byte* data, std::size_t size) noexcept {
  forget_pages(data);
  ASAN_UNPOISON_MEMORY_REGION(data, in_huge_pages(size));
  munmap(data, in_huge_pages(size));
}

int64_t untouched_bytes() { return promised_bytes(); }

}  // namespace ferry
