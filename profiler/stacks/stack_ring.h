#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profiler/zones.h"

namespace ferry {

/// A thread as a signal found it: its registers and the inner end of its stack, from which whoever drains it finds the callers.
struct RawStack {
  static constexpr std::size_t kMaxRegisters = 33;
  static constexpr std::size_t kMaxBytes = 16 << 10;  // of stacks that hold more the outer end is lost

  uint64_t ticks = 0;
  Zone zone = Zone::kStep;
  bool is_in_zone = false;
  uint16_t periods = 1;
  uint32_t num_words = 0;                           // of the stack
  std::array<uint64_t, kMaxRegisters> registers{};  // as DWARF numbers them
  uint64_t pc = 0, sp = 0;
  std::array<uint64_t, kMaxBytes / sizeof(uint64_t)> words;  // from sp upwards
};

/// Stacks of one thread, from its signal handler to whoever drains them: one writes, one reads, nobody waits, nothing is
/// allocated. What finds no room is counted. 1 MiB, of which pages are touched as they are first written.
class StackRing {
 public:
  static constexpr std::size_t kCapacity = 64;

  /// `stack_top`: one past the highest address of the thread's stack.
  explicit StackRing(uintptr_t stack_top) : stack_top_(stack_top) {}
  uintptr_t stack_top() const { return stack_top_; }

  /// The writer: where the next stack is to be put, null if there is no room; then publish().
  RawStack* next() {
    const uint64_t written = num_written_.load(std::memory_order_relaxed);
    if (written - num_read_.load(std::memory_order_acquire) < kCapacity) return &stacks_[written % kCapacity];
    num_lost_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  void publish() { num_written_.store(num_written_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

  /// The reader: hands over what there is.
  template <class Take>
  void drain(Take&& take) {
    uint64_t read = num_read_.load(std::memory_order_relaxed);
    for (const uint64_t written = num_written_.load(std::memory_order_acquire); read < written;) {
      take(stacks_[read % kCapacity]);
      num_read_.store(++read, std::memory_order_release);
    }
  }
  uint64_t num_written() const { return num_written_.load(std::memory_order_acquire); }
  uint64_t num_lost() const { return num_lost_.load(std::memory_order_relaxed); }

 private:
  const uintptr_t stack_top_;
  std::atomic<uint64_t> num_written_{0}, num_read_{0}, num_lost_{0};
  std::array<RawStack, kCapacity> stacks_;
};

}  // namespace ferry
