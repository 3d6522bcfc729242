#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "profiler/counters/operator_counts.h"
#include "profiler/recorder.h"
#include "profiler/span_chain.h"
#include "profiler/span_record.h"
#include "runtime/base/check.h"

namespace ferry {

class Span;

namespace detail {
/// The innermost span that the calling thread is in and that is recorded; null outside of any.
extern thread_local constinit const Span* open_span;
}  // namespace detail

/// Whether spans of `zone` are recorded at the moment.
inline bool is_traced(Zone zone) {
  return static_cast<int8_t>(zone_info(zone).level) <= detail::trace_level.load(std::memory_order_relaxed);
}

/// A span with the calling thread's step and layer.
inline SpanRecord make_span_record(Zone zone, uint64_t begin, uint64_t end, uint32_t a, uint32_t b) {
  const CheckContext& at = check_context();
  return {.begin = begin,
          .end = end,
          .step = static_cast<uint32_t>(at.step),
          .zone = zone,
          .micro_batch = static_cast<uint8_t>(at.micro_batch),
          .layer = static_cast<int16_t>(at.layer),
          .a = a,
          .b = b};
}

/// Writes a finished span with the calling thread's step and layer.
inline void push_span(TraceBuffer& ring, Zone zone, uint64_t begin, uint64_t end, uint32_t a, uint32_t b) {
  ring.push(make_span_record(zone, begin, end, a, b));
}

/// A span that ended elsewhere or was measured by other means: ticks of now_ticks(). Nothing happens on a thread that is not
/// registered.
inline void record_span(Zone zone, uint64_t begin, uint64_t end, uint32_t a = 0, uint32_t b = 0) {
  if (!is_traced(zone) || detail::trace_buffer == nullptr) return;
  push_span(*detail::trace_buffer, zone, begin, end, a, b);
}

/// A counter's value at `time` (ticks).
inline void record_value_at(uint64_t time, Zone zone, int64_t value, uint32_t b = 0) {
  record_span(zone, time, time, static_cast<uint32_t>(value), b);
}

/// A counter's value now.
inline void record_value(Zone zone, int64_t value, uint32_t b = 0) {
  if (is_traced(zone) && detail::trace_buffer != nullptr) record_value_at(now_ticks(), zone, value, b);
}

/// What a counter counted from `since` (ticks) to now.
inline void record_counted(Zone zone, uint64_t since, int64_t value, uint32_t b = 0) {
  if (!is_traced(zone) || detail::trace_buffer == nullptr) return;
  push_span(*detail::trace_buffer, zone, since, now_ticks(), static_cast<uint32_t>(value), b);
}

/// Records the time from its construction to its destruction; in a SpanChain from the end of the span before. Step and layer
/// are those of the end (check_context()).
class Span {
 public:
  explicit Span(Zone zone, int64_t a = 0, int64_t b = 0)
      : zone_(zone), a_(static_cast<uint32_t>(a)), b_(static_cast<uint32_t>(b)) {
    if (!is_traced(zone) || detail::trace_buffer == nullptr) return;
    ring_ = detail::trace_buffer;
    outer_ = std::exchange(detail::open_span, this);
    if (detail::operator_counts != nullptr) detail::operator_counts->begin(zone);
    begin_ = place_.begin();
  }
  ~Span() {
    if (ring_ == nullptr) return;
    push_span(*ring_, zone_, begin_, place_.end(), a_, b_);
    detail::open_span = outer_;
    if (detail::operator_counts != nullptr) detail::operator_counts->end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  friend std::optional<SpanRecord> open_operator();
  friend std::optional<Zone> open_zone();

  TraceBuffer* ring_ = nullptr;  // null: nothing is recorded
  const Span* outer_ = nullptr;
  uint64_t begin_ = 0;
  ChainPlace place_;
  const Zone zone_;
  const uint32_t a_, b_;
};

/// The innermost operator that the calling thread is in, as its span will be recorded; its end is its begin, by which it is
/// told from any other of the thread. Nothing outside of operators.
std::optional<SpanRecord> open_operator();

/// The innermost span that the calling thread is in. May be called by a signal handler.
std::optional<Zone> open_zone();

}  // namespace ferry
