#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "profiler/span_record.h"

namespace ferry {

/// A ring of finished spans: one thread writes, any one thread reads, nobody waits. The oldest spans are overwritten; a reader
/// learns exactly how many it missed.
class TraceBuffer {
 public:
  /// `capacity` records of 32 bytes, a power of two. Pages are touched when they are first written.
  explicit TraceBuffer(std::size_t capacity);
  TraceBuffer(const TraceBuffer&) = delete;
  TraceBuffer& operator=(const TraceBuffer&) = delete;

  /// The owning thread only. Never blocks, never allocates.
  void push(const SpanRecord& record) noexcept;

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
  static constexpr std::size_t kWords = sizeof(SpanRecord) / sizeof(uint64_t);

  uint64_t end_of(uint64_t number) const;

  const std::size_t mask_;
  std::unique_ptr<std::atomic<uint64_t>[]> words_;  // [capacity][kWords]
  std::atomic<uint64_t> num_written_{0};
};

}  // namespace ferry
