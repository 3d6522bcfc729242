#include "runtime/base/aligned_buffer.h"

#include <cstdlib>
#include <cstring>

#include "runtime/base/available_memory.h"
#include "runtime/base/lazy_pages.h"

namespace ferry {
namespace {

constexpr std::size_t kLazyBytes = std::size_t{2} << 20;      // from here on memory is taken page by page, when it is used
constexpr std::size_t kCheckedBytes = std::size_t{64} << 20;  // from here on a look at the memory costs little

bool is_lazy(std::size_t size) { return size >= kLazyBytes; }

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t size) : size_(size) {
  if (size == 0) return;
  if (size >= kCheckedBytes) require_memory(static_cast<int64_t>(size), "a buffer");
  if (is_lazy(size)) {
    data_ = {map_lazy_pages(size), Free{size, current_memory_use()}};
    return;
  }
  void* p = std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  if (p == nullptr) throw std::bad_alloc();
  std::memset(p, 0, size);
  data_ = {static_cast<std::byte*>(p), Free{size, current_memory_use()}};
  count_small_bytes(current_memory_use(), static_cast<int64_t>(size));
}

void AlignedBuffer::Free::operator()(std::byte* p) const {
  if (is_lazy(size)) return unmap_lazy_pages(p, size);
  count_small_bytes(use, -static_cast<int64_t>(size));
  std::free(p);
}

}  // namespace ferry
