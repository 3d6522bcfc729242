#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profiler/report/timeline/report_input.h"

// Dispatch and combine of one layer (and micro-batch) in one step, seen as a race of the workers and the coordinator: who got
// its rows when, whose reply was back when, when the coordinator was ready to combine.

namespace ferry {

inline constexpr int64_t kLookNs = 20'000;  // a wait for a message that is shorter may be no more than a look

/// One worker's part of an exchange. Times of the coordinator's clock.
struct Reply {
  int32_t rank = 0;
  int64_t dispatched_ns = 0;  // the coordinator posted its rows
  int64_t free_ns = 0;        // then, or when it had replied to those before: what lies between is no way, but work on others
  int64_t arrived_ns = 0;     // they were there
  int64_t posted_ns = 0;      // it posted its reply
  int64_t seen_ns = 0;        // the coordinator took the reply in: replies are taken in the order of ranks
  int64_t wait_ns = 0;        // the coordinator began to wait for it; seen_ns if it did not
  int64_t back_ns = 0;        // the reply was back, wherever the coordinator was: posted_ns ‥ seen_ns
  int64_t rows = 0;           // that its experts computed; the bytes of its reply where rows were not recorded

  int64_t work_ns() const { return posted_ns - arrived_ns; }
  int64_t way_ns() const { return arrived_ns - free_ns + back_ns - posted_ns; }
};

struct SeenExchange {
  ExchangeId id;
  int64_t begin_ns = 0;             // the coordinator posted the first dispatch
  int64_t ready_ns = 0;             // it had nothing left to do but wait; begin_ns if it never waited
  int64_t done_ns = 0;              // it had every reply
  std::size_t first = 0, last = 0;  // [first, last) of Exchanges::replies, by rank
};

struct Exchanges {
  std::vector<SeenExchange> list;  // by id
  std::vector<Reply> replies;
  std::vector<int64_t> usual_back_ns;  // [num_ranks] what a reply of the rank usually takes from post to coordinator

  std::span<const Reply> replies_of(const SeenExchange& exchange) const {
    return std::span(replies).subspan(exchange.first, exchange.last - exchange.first);
  }
};

/// Exchanges of which both messages with a worker are in the capture.
///
/// When a reply was back is known where the coordinator waited for it already as it was posted, and where it waited for longer
/// than the whole way usually takes. Otherwise the wait may have been no more than taking it in, and the reply is taken to have
/// travelled as long as that worker's replies usually do.
Exchanges find_exchanges(const ReportInput& input);

}  // namespace ferry
