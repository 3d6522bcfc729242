#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/capture.h"

// How the clocks of hosts are brought together. On one host they are one clock. Otherwise the coordinator asks a rank for its
// time, many times; an answer cannot be older than the question nor newer than its arrival, so the offset is known to half the
// round trip. A line through the quickest exchanges gives offset and drift.

namespace ferry {

/// The coordinator asked at sent_ns and had the answer at received_ns (its clock); the rank's clock said rank_ns in between.
struct ClockExchange {
  int64_t sent_ns = 0;
  int64_t rank_ns = 0;
  int64_t received_ns = 0;

  int64_t round_trip_ns() const { return received_ns - sent_ns; }
  /// Coordinator's clock minus the rank's, if the answer was halfway.
  double offset_ns() const;
};

/// How many exchanges of a capture are kept at most; what is dropped when there are more is spread over its time.
constexpr std::size_t kMaxExchanges = 4096;
/// Appends `exchange` to the earlier ones, of which every second one goes first if there are kMaxExchanges.
void keep_exchange(std::vector<ClockExchange>& exchanges, const ClockExchange& exchange);

/// The line through the quickest exchanges, and how far from it the truth can be: half their round trip plus what they stray.
/// With exchanges in one burst only the drift is taken to be 0. Needs at least one exchange.
ClockAlignment fit_clock(std::span<const ClockExchange> exchanges);

/// Every dispatch and its reply is an exchange, too: the rank's time between receiving and sending is taken out of the middle.
/// There are thousands, all over the capture, where a burst of questions can meet a busy moment.
std::vector<ClockExchange> find_exchanges(const RankCapture& coordinator, const RankCapture& rank);

/// The messages between two ranks know the offset, too: none arrives before it was sent. Moves the rank's alignment by as
/// little as makes that so for all of them (halfway where they contradict each other), and widens its bound by as much.
/// Exchanges on a busy host can be off by more than a message takes.
void obey_causality(const RankCapture& coordinator, RankCapture& rank);

}  // namespace ferry
