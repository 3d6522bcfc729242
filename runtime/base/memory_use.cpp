#include "runtime/base/memory_use.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

namespace ferry {
namespace {

thread_local constinit MemoryUse current_use = MemoryUse::kBuffers;

struct Pages {
  std::size_t bytes = 0;
  MemoryUse use{};
  bool is_promised = false;
};

/// What is mapped.
struct Mapped {
  std::mutex mutex;
  std::map<std::byte*, Pages> pages;  // by where they begin
};
Mapped& all_mapped() {
  static Mapped mapped;
  return mapped;
}

std::array<std::atomic<int64_t>, kNumMemoryUses>& small_bytes() {
  static std::array<std::atomic<int64_t>, kNumMemoryUses> bytes{};
  return bytes;
}

/// Of `size` bytes at `data`, in whole pages; 0 where the system does not say.
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

MemoryUseScope::MemoryUseScope(MemoryUse use) : outer_(std::exchange(current_use, use)) {}
MemoryUseScope::~MemoryUseScope() { current_use = outer_; }

MemoryUse current_memory_use() { return current_use; }

void count_small_bytes(MemoryUse use, int64_t change) {
  small_bytes()[static_cast<std::size_t>(use)].fetch_add(change, std::memory_order_relaxed);
}

void note_pages(std::byte* data, std::size_t bytes, MemoryUse use, bool is_promised) {
  Mapped& all = all_mapped();
  const std::scoped_lock lock(all.mutex);
  all.pages.insert_or_assign(data, Pages{bytes, use, is_promised});
}

void forget_pages(std::byte* data) noexcept {
  Mapped& all = all_mapped();
  const std::scoped_lock lock(all.mutex);
  all.pages.erase(data);
}

std::array<UsedMemory, kNumMemoryUses> measure_memory_uses() {
  std::array<UsedMemory, kNumMemoryUses> uses{};
  for (std::size_t u = 0; u < kNumMemoryUses; ++u) uses[u].small = small_bytes()[u].load(std::memory_order_relaxed);
  Mapped& all = all_mapped();
  const std::scoped_lock lock(all.mutex);
  for (const auto& [data, pages] : all.pages) {
    UsedMemory& use = uses[static_cast<std::size_t>(pages.use)];
    use.reserved += static_cast<int64_t>(pages.bytes);
    use.resident += static_cast<int64_t>(pages.bytes - untouched_of(data, pages.bytes));
  }
  return uses;
}

int64_t promised_bytes() {
  Mapped& all = all_mapped();
  const std::scoped_lock lock(all.mutex);
  std::size_t promised = 0;
  for (const auto& [data, pages] : all.pages) {
    if (pages.is_promised) promised += untouched_of(data, pages.bytes);
  }
  return static_cast<int64_t>(promised);
}

}  // namespace ferry
