#pragma once

#include <cstdint>
#include <vector>

#include "profiler/report/timeline/report_input.h"

// The exchanges between the coordinator and its workers seen as collectives, as communication libraries log them: every layer
// of every step dispatches rows and combines results, once for each micro-batch.

namespace ferry {

/// One rank's side of one message of a collective.
struct CollectiveLink {
  int32_t slice = 0;  // index into Timeline::slices
  int32_t peer = 0;
  bool is_send = false;
  int64_t bytes = 0;
  int64_t begin_ns = 0, end_ns = 0;
  /// From its begin until the other side began too. 0 if that is not known, if it is within the clocks' error, and if this side
  /// was done before: such a message did not need the other yet.
  int64_t wait_ns = 0;

  int64_t transit_ns() const { return end_ns - begin_ns - wait_ns; }
};

/// One rank's part in a collective. elapse = wait + transit.
struct Collective {
  uint32_t step = 0;
  int32_t layer = 0;
  uint8_t micro_batch = 0;
  bool is_dispatch = false;  // else combine
  int32_t first_link = 0;    // [first_link, last_link) of RankCollectives::links
  int32_t last_link = 0;
  int64_t begin_ns = 0, end_ns = 0;  // of its first link to begin and its last to end
  int64_t wait_ns = 0;               // until the last of the other sides began
  int64_t synchronization_ns = 0;    // until the first of them began
  int64_t sent_bytes = 0;

  int64_t elapse_ns() const { return end_ns - begin_ns; }
  int64_t transit_ns() const { return elapse_ns() - wait_ns; }
};

struct RankCollectives {
  std::vector<Collective> collectives;  // by step, layer, micro-batch, dispatch before combine
  std::vector<CollectiveLink> links;    // by collective, then begin
};

/// Those of steps that the capture does not know (they began before it) are among them.
RankCollectives find_collectives(const ReportInput& input, int32_t rank);

}  // namespace ferry
