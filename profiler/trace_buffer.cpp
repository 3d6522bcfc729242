#include "profiler/trace_buffer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "runtime/base/check.h"

namespace ferry {

TraceBuffer::TraceBuffer(std::size_t capacity)
    : mask_(capacity - 1), words_(std::make_unique_for_overwrite<std::atomic<uint64_t>[]>(capacity * kWords)) {
  FERRY_CHECK(std::has_single_bit(capacity)) << " capacity " << capacity;
}

uint64_t TraceBuffer::held_since() const {
  const uint64_t written = num_written();
  if (written <= capacity()) return 0;
  return end_of(written);
}

uint64_t TraceBuffer::last_end(uint64_t limit) const {
  const uint64_t written = num_written();
  const uint64_t oldest = written > capacity() ? written - capacity() : 0;
  for (uint64_t number = written; number > oldest; --number) {
    if (const uint64_t end = end_of(number - 1); end <= limit) return end;
  }
  return 0;
}

uint64_t TraceBuffer::first_since(uint64_t ticks) const {
  uint64_t last = num_written();
  uint64_t first = last > capacity() ? last - capacity() : 0;
  while (first < last) {
    const uint64_t middle = first + (last - first) / 2;
    if (end_of(middle) < ticks) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

uint64_t TraceBuffer::end_of(uint64_t number) const {
  constexpr std::size_t kEndWord = offsetof(SpanRecord, end) / sizeof(uint64_t);
  return words_[(number & mask_) * kWords + kEndWord].load(std::memory_order_relaxed);
}

uint64_t TraceBuffer::read(uint64_t first, std::vector<SpanRecord>& out, uint64_t& num_lost) const {
  const uint64_t end = num_written();
  const uint64_t oldest = end > capacity() ? end - capacity() : 0;
  const uint64_t begin = std::max(first, oldest);
  const std::size_t kept_before = out.size();
  for (uint64_t number = begin; number < end; ++number) {
    const std::atomic<uint64_t>* slot = words_.get() + (number & mask_) * kWords;
    std::array<uint64_t, kWords> words;
    for (std::size_t i = 0; i < kWords; ++i) words[i] = slot[i].load(std::memory_order_relaxed);
    out.push_back(std::bit_cast<SpanRecord>(words));
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  // The writer may by now be inside the slot of record number `written`, which is that of `written - capacity`.
  const uint64_t written = num_written_.load(std::memory_order_relaxed);
  const uint64_t intact = written + 1 > capacity() ? written + 1 - capacity() : 0;
  const uint64_t torn = intact > begin ? std::min(intact, end) - begin : 0;
  out.erase(out.begin() + static_cast<std::ptrdiff_t>(kept_before),
            out.begin() + static_cast<std::ptrdiff_t>(kept_before + torn));
  num_lost += begin - std::min(first, begin) + torn;
  return end;
}

}  // namespace ferry
