#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// What the process's memory is used for: who asks for much says so, and who looks learns what of it is there.

namespace ferry {

enum class MemoryUse : uint8_t {
  kBuffers,  // of steps, and whatever nobody gave a name
  kWeights,
  kKvCache,
  kRecurrentState,
  kSnapshots,  // of recurrent states: the prefix cache's and others
  kSwapSpace,
  kExchange,  // messages between ranks
};
inline constexpr std::size_t kNumMemoryUses = 7;

/// What memory that the calling thread asks for is for, from here to the end of the scope. Inner scopes hide outer ones.
class MemoryUseScope {
 public:
  explicit MemoryUseScope(MemoryUse use);
  ~MemoryUseScope();
  MemoryUseScope(const MemoryUseScope&) = delete;
  MemoryUseScope& operator=(const MemoryUseScope&) = delete;

 private:
  const MemoryUse outer_;
};

/// That of the innermost scope of the calling thread; kBuffers outside of any.
MemoryUse current_memory_use();

/// Small memory, which lies among other things of the process. Any thread.
void count_small_bytes(MemoryUse use, int64_t change);

/// Memory of a device, which the system does not count of the process. Any thread.
void count_device_bytes(MemoryUse use, int64_t change);

/// Pages of one's own, from `data` on, until they are forgotten. `is_promised`: those that are not touched yet count for
/// untouched_bytes() (runtime/base/lazy_pages.h). Throws std::bad_alloc. Any thread.
void note_pages(std::byte* data, std::size_t bytes, MemoryUse use, bool is_promised);
void forget_pages(std::byte* data) noexcept;
/// Pages among those of one's own were given back to the system, which takes memory for them again when they are next touched.
void note_dropped(const std::byte* data, std::size_t bytes) noexcept;

/// Bytes of a use.
struct UsedMemory {
  int64_t reserved = 0;  // of pages, touched or not
  int64_t resident = 0;  // of these, touched, and not dropped since: in memory, but for what the system swapped out of it
  int64_t small = 0;     // elsewhere on the heap
  int64_t device = 0;    // on devices
};
/// By MemoryUse. Takes about a millisecond for 4 GiB of pages that were not all touched when they were last looked at. Any
/// thread.
std::array<UsedMemory, kNumMemoryUses> measure_memory_uses();
/// Of all promised pages those that were not touched. As long. Any thread.
int64_t promised_bytes();

}  // namespace ferry
