#include "tests/support/allocation_count.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();

std::atomic<int64_t> g_num_allocations = 0;
std::atomic<int64_t> g_num_live_bytes = 0;
std::atomic<int64_t> g_most_live_bytes = 0;
std::atomic<int64_t> g_most_bytes = kNoBound;
thread_local constinit int64_t t_most_bytes = kNoBound;  // of this thread

void* allocate(std::size_t bytes, std::size_t alignment) {
  g_num_allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  const bool fits = static_cast<int64_t>(bytes) <= std::min(t_most_bytes, g_most_bytes.load(std::memory_order_relaxed));
  void* memory = fits ? std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  const auto usable_bytes = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t live_bytes = g_num_live_bytes.fetch_add(usable_bytes, std::memory_order_relaxed) + usable_bytes;
  int64_t most = g_most_live_bytes.load(std::memory_order_relaxed);
  while (live_bytes > most && !g_most_live_bytes.compare_exchange_weak(most, live_bytes, std::memory_order_relaxed)) {
  }
  return memory;
}

void* allocate_or_null(std::size_t bytes) noexcept {
  try {
    return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void release(void* memory) {
  g_num_live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

// All forms that are used: a sanitizer's own ones do not call each other, as the library's do.
void* operator new(std::size_t bytes) { return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new[](std::size_t bytes) { return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_or_null(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_or_null(bytes); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace ferry::test {

int64_t num_allocations() { return g_num_allocations.load(); }
int64_t num_live_bytes() { return g_num_live_bytes.load(); }
int64_t take_most_live_bytes() { return g_most_live_bytes.exchange(g_num_live_bytes.load()); }

LittleMemory::LittleMemory(int64_t most_bytes, Whose whose) {
  if (whose == Whose::kThisThreads) {
    t_most_bytes = most_bytes;
  } else {
    g_most_bytes = most_bytes;
  }
}
LittleMemory::~LittleMemory() {
  t_most_bytes = kNoBound;
  g_most_bytes = kNoBound;
}

}  // namespace ferry::test
