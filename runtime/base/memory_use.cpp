#include "runtime/base/memory_use.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace ferry {
namespace {

thread_local constinit MemoryUse current_use = MemoryUse::kBuffers;

constexpr std::size_t kBlockBytes = std::size_t{16} << 20;  // of which the system is asked at once

struct Pages {
  std::size_t bytes = 0;
  MemoryUse use{};
  bool is_promised = false;
  std::vector<bool> is_touched;  // by block: all of it was there once, and was not dropped since
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

using BytesByUse = std::array<std::atomic<int64_t>, kNumMemoryUses>;

BytesByUse& small_bytes() {
  static BytesByUse bytes{};
  return bytes;
}
BytesByUse& device_bytes() {
  static BytesByUse bytes{};
  return bytes;
}

/// Of a block of `size` bytes at `data`, in whole pages; 0 where the system does not say.
std::size_t untouched_of(std::byte* data, std::size_t size) {
  static const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::array<unsigned char, kBlockBytes / 4096> is_present;  // by page; bit 0
  if (mincore(data, size, is_present.data()) != 0) return 0;
  const auto num_pages = static_cast<std::ptrdiff_t>((size + page_bytes - 1) / page_bytes);
  const auto num_present =
      std::count_if(is_present.begin(), is_present.begin() + num_pages, [](unsigned char p) { return (p & 1U) != 0; });
  return static_cast<std::size_t>(num_pages - num_present) * page_bytes;
}

/// Of all of a mapping that begins at `data`.
std::size_t untouched_of(std::byte* data, Pages& pages) {
  std::size_t untouched = 0;
  for (std::size_t block = 0; block < pages.is_touched.size(); ++block) {
    if (pages.is_touched[block]) continue;
    const std::size_t begin = block * kBlockBytes;
    const std::size_t missing = untouched_of(data + begin, std::min(kBlockBytes, pages.bytes - begin));
    pages.is_touched[block] = missing == 0;
    untouched += missing;
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

void count_device_bytes(MemoryUse use, int64_t change) {
  device_bytes()[static_cast<std::size_t>(use)].fetch_add(change, std::memory_order_relaxed);
}

void note_pages(std::byte* data, std::size_t bytes, MemoryUse use, bool is_promised) {
  Mapped& all = all_mapped();
  Pages pages{bytes, use, is_promised, std::vector<bool>((bytes + kBlockBytes - 1) / kBlockBytes)};
  const std::scoped_lock lock(all.mutex);
  all.pages.insert_or_assign(data, std::move(pages));
}

void note_dropped(const std::byte* data, std::size_t bytes) noexcept {
  Mapped& all = all_mapped();
  const std::scoped_lock lock(all.mutex);
  const auto behind = all.pages.upper_bound(const_cast<std::byte*>(data));
  if (bytes == 0 || behind == all.pages.begin()) return;
  auto& [begin, pages] = *std::prev(behind);
  const auto first = static_cast<std::size_t>(data - begin);
  const std::size_t end = std::min((first + bytes - 1) / kBlockBytes + 1, pages.is_touched.size());
  for (std::size_t block = first / kBlockBytes; block < end; ++block) pages.is_touched[block] = false;
}

void forget_pages(std::byte* data) noexcept {
  Mapped& all = all_mapped();
  const std::scoped_lock lock(all.mutex);
  all.pages.erase(data);
}

std::array<UsedMemory, kNumMemoryUses> measure_memory_uses() {
  std::array<UsedMemory, kNumMemoryUses> uses{};
  for (std::size_t u = 0; u < kNumMemoryUses; ++u) {
    uses[u].small = small_bytes()[u].load(std::memory_order_relaxed);
    uses[u].device = device_bytes()[u].load(std::memory_order_relaxed);
  }
  Mapped& all = all_mapped();
  const std::scoped_lock lock(all.mutex);
  for (auto& [data, pages] : all.pages) {
    UsedMemory& use = uses[static_cast<std::size_t>(pages.use)];
    use.reserved += static_cast<int64_t>(pages.bytes);
    use.resident += static_cast<int64_t>(pages.bytes - untouched_of(data, pages));
  }
  return uses;
}

int64_t promised_bytes() {
  Mapped& all = all_mapped();
  const std::scoped_lock lock(all.mutex);
  std::size_t promised = 0;
  for (auto& [data, pages] : all.pages) {
    if (pages.is_promised) promised += untouched_of(data, pages);
  }
  return static_cast<int64_t>(promised);
}

}  // namespace ferry
