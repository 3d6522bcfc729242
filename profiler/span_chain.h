#pragma once

#include <cstdint>
#include <utility>

#include "profiler/tick_clock.h"

namespace ferry {

namespace detail {
inline constexpr uint64_t kNoChain = 0;      // the thread is in no chain, or in a span within one
inline constexpr uint64_t kChainBegins = 1;  // it is in a chain of which no span has ended yet
/// Of the calling thread: either of the above, or the end (ticks) of the span before in its chain.
extern thread_local constinit uint64_t chain_end;
}  // namespace detail

/// A sequence of operators between which the calling thread does nothing of its own: it only calls the next. While a chain
/// stands, each span that is opened directly in it, not within another span, begins at the very tick at which the one before
/// it ended, so that two neighbours share one reading of the clock, which is most of what a span costs.
///
///   const SpanChain chain;
///   add(stream, …);       // a span
///   rms_norm(stream, …);  // begins where the first one ended
///
/// What lies between two operators of a chain counts as the later one's time. So there may be nothing between them but a call
/// and its arguments, no work, no wait, and no span that is recorded from a higher level on: where there is, gaps tell of it
/// and must not be chained away. A chain within a chain is part of the outer one. Costs a nanosecond, whether spans are
/// recorded or not.
class SpanChain {
 public:
  SpanChain() : is_outermost_(detail::chain_end == detail::kNoChain) {
    if (is_outermost_) detail::chain_end = detail::kChainBegins;
  }
  ~SpanChain() {
    if (is_outermost_) detail::chain_end = detail::kNoChain;
  }
  SpanChain(const SpanChain&) = delete;
  SpanChain& operator=(const SpanChain&) = delete;

 private:
  const bool is_outermost_;
};

/// The place of a span in the chain that its thread is directly in, if it is in one: where it begins, and what the next one
/// gets. begin() and end() once each, in this order, or neither.
class ChainPlace {
 public:
  /// Ticks at which the span begins.
  uint64_t begin() {
    const uint64_t before = std::exchange(detail::chain_end, detail::kNoChain);
    is_in_chain_ = before != detail::kNoChain;
    return before > detail::kChainBegins ? before : now_ticks();
  }
  /// Ticks at which it ends: now.
  uint64_t end() const {
    const uint64_t now = now_ticks();
    detail::chain_end = is_in_chain_ ? now : detail::kNoChain;
    return now;
  }

 private:
  bool is_in_chain_ = false;
};

}  // namespace ferry
