#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// Which message ended a wait for another rank, and when it was there. A rank that was not waiting yet when a message was sent
/// cannot tell when that came: its wait may have been no more than taking it in.
class Arrivals {
 public:
  /// Medians are over the whole capture. `input` must outlive this. `stops`: [num_ranks] when each rank did not run.
  Arrivals(const ReportInput& input, const std::vector<IntervalSet>& stops);

  /// By exchange, peer and direction: of a wait for rows or for a reply the message that ended it, of a wait for a send the one
  /// that is being sent. Index into Timeline::messages; -1 if the capture has no such message with both ends, or the slice is
  /// no wait for a peer.
  int32_t message_of(const Slice& wait) const;

  /// When the message was there, at most the end of the wait. It is known where the wait had begun when it was sent, and where
  /// that was too long for taking it in. Otherwise, and where the one that waits did not run meanwhile, it has taken as long as
  /// messages of that sender to that rank usually do.
  int64_t arrival_ns(const Slice& wait, const Message& message) const;

 private:
  using Key = std::tuple<bool, int32_t, int32_t, ExchangeId>;  // is it a dispatch, source, target, exchange
  using Way = std::pair<int32_t, int32_t>;                     // source, target

  void find_usual();
  int64_t usual_ns(const Message& message) const;

  const Timeline& timeline_;
  const std::vector<IntervalSet>& stops_;
  std::map<Key, int32_t> messages_;
  std::map<Way, int64_t> usual_ns_;
  int64_t shortest_ns_ = 0;  // of these
};

}  // namespace ferry
