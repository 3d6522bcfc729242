#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "profiler/span_record.h"

namespace ferry {

inline constexpr std::size_t kRecordWords = sizeof(SpanRecord) / sizeof(uint64_t);

/// A record as it lies in memory, put together in registers: a word that is read right after its parts were stored waits until
/// they have left the processor, which takes longer than a reading of the clock.
constexpr std::array<uint64_t, kRecordWords> words_of(const SpanRecord& r) {
  const uint64_t place =
      uint64_t{static_cast<uint8_t>(r.zone)} | uint64_t{r.micro_batch} << 8 | uint64_t{static_cast<uint16_t>(r.layer)} << 16;
  return {r.begin, r.end, r.step | place << 32, r.a | uint64_t{r.b} << 32};
}
inline constexpr SpanRecord kSomeRecord{1, 2, 3, Zone::kIdle, 5, -6, 7, 8};
static_assert(std::bit_cast<SpanRecord>(words_of(kSomeRecord)) == kSomeRecord);

/// A ring of finished spans: one thread writes, any one thread reads, nobody waits. The oldest spans are overwritten; a reader
/// learns exactly how many it missed.
class TraceBuffer {
 public:
  /// `capacity` records of 32 bytes, a power of two. Pages are touched when they are first written.
  explicit TraceBuffer(std::size_t capacity);
  TraceBuffer(const TraceBuffer&) = delete;
  TraceBuffer& operator=(const TraceBuffer&) = delete;

  /// The owning thread only. Never blocks, never allocates.
  void push(const SpanRecord& record) noexcept {
    const std::array<uint64_t, kWords> words = words_of(record);
    const uint64_t number = num_written_.load(std::memory_order_relaxed);
    std::atomic<uint64_t>* slot = words_.get() + (number & mask_) * kWords;
    // Who sees a new word in the slot also sees that the slot's old record is about to go.
    std::atomic_thread_fence(std::memory_order_release);
    slot[0].store(words[0], std::memory_order_relaxed);
    slot[1].store(words[1], std::memory_order_relaxed);
    slot[2].store(words[2], std::memory_order_relaxed);
    slot[3].store(words[3], std::memory_order_relaxed);
    num_written_.store(number + 1, std::memory_order_release);
  }

  /// Number of records ever written.
  uint64_t num_written() const { return num_written_.load(std::memory_order_acquire); }
  std::size_t capacity() const { return mask_ + 1; }

  /// The end of the oldest span that is still there if older ones are overwritten, else 0. To any thread but the owner it may
  /// be that of the newest one.
  uint64_t held_since() const;

  /// Any thread: the end of the newest record that ended by `limit`, 0 if there is none. For moments that the ring holds many
  /// times over: what is overwritten meanwhile is not told from what stands.
  uint64_t last_end(uint64_t limit) const;

  /// Any thread: the number of the first record that is still there and ended at `ticks` or later; that of the next one to
  /// come if there is none. Records whose ends are not quite in order may lie before it.
  uint64_t first_since(uint64_t ticks) const;

  /// Appends the records from number `first` up to the newest to `out`, without those that are overwritten already or
  /// meanwhile. Returns the number behind the last one looked at; `num_lost` grows by what was missed.
  uint64_t read(uint64_t first, std::vector<SpanRecord>& out, uint64_t& num_lost) const;

 private:
  static constexpr std::size_t kWords = kRecordWords;

  uint64_t end_of(uint64_t number) const;

  const std::size_t mask_;
  std::unique_ptr<std::atomic<uint64_t>[]> words_;  // [capacity][kWords]
  std::atomic<uint64_t> num_written_{0};
};

}  // namespace ferry
