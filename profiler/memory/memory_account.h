#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "profiler/memory/memory_samples.h"

namespace ferry {

/// What requests use of the memory of this process at the moment, as the program says: kinds of MemoryRole::kUsed. Any thread
/// may call any method; nobody waits.
class MemoryAccount {
 public:
  MemoryAccount() {
    for (std::atomic<int64_t>& bytes : bytes_) bytes.store(kNotKnown, std::memory_order_relaxed);
  }

  void set(MemoryKind kind, int64_t bytes) { bytes_[static_cast<std::size_t>(kind)].store(bytes, std::memory_order_relaxed); }
  int64_t bytes(MemoryKind kind) const { return bytes_[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<int64_t>, kNumMemoryKinds> bytes_;
};

}  // namespace ferry
