#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "profiler/report/report_input.h"

// Dispatch and combine of one layer (and micro-batch) in one step, seen as a race of the workers: who got its rows when, who answered when, and
// what each spent its time on.

namespace ferry {

/// What a worker's time in an exchange goes to; the last two are whatever is left and a late start.
inline constexpr Zone kWorkZones[] = {Zone::kPermute,     Zone::kGroupedGateUp, Zone::kExpertQuantize,
                                      Zone::kGroupedDown, Zone::kCombine,       Zone::kExperts};
inline constexpr std::size_t kNumWorkZones = std::size(kWorkZones);
inline constexpr std::size_t kOtherWork = kNumWorkZones;
inline constexpr std::size_t kLateStart = kNumWorkZones + 1;
inline constexpr std::size_t kNumCauses = kNumWorkZones + 2;
/// "GroupedMatmulSwiglu", …, "outside its operators", "late start".
const char* cause_name(std::size_t cause);

/// One worker's part of an exchange. Times of the coordinator's clock.
struct Reply {
  int32_t rank = 0;
  int64_t arrived_ns = 0;                         // its rows were there
  int64_t posted_ns = 0;                          // it posted its reply
  int64_t waited_ns = 0;                          // the coordinator waited for the reply, own clock
  int64_t rows = 0;                               // that its experts computed; 0 if not recorded
  std::array<int64_t, kNumWorkZones + 1> work{};  // ns in each of kWorkZones (own time), and what is left
};

struct Exchange {
  ExchangeId id;
  int64_t begin_ns = 0;             // the coordinator posted the first dispatch
  std::size_t first = 0, last = 0;  // [first, last) of Exchanges::replies, by rank
};

struct Exchanges {
  std::vector<Exchange> list;  // by id
  std::vector<Reply> replies;

  /// Null if there is none.
  Reply* find(const ExchangeId& id, int32_t rank);
};

/// Exchanges of which both messages with a worker are in the capture.
///
/// A reply counts from the moment its worker posted it: the coordinator takes replies in the order of ranks, so the time at
/// which it sees one says little about the others.
Exchanges find_exchanges(const ReportInput& input);

/// Who answered last in an exchange of at least two workers.
struct Lateness {
  const Reply* last = nullptr;
  int64_t late_ns = 0;                       // behind the median of the others
  int64_t elapsed_ns = 0;                    // from the first dispatch to the last reply
  double bound_ns = 0;                       // of comparing it with the others
  bool has_vote = false;                     // late_ns is above the bound and above 5 % of elapsed_ns
  std::array<int64_t, kNumCauses> excess{};  // ns of the last one above the median of the others, by cause
};
Lateness find_last(const ReportInput& input, const Exchanges& exchanges, const Exchange& exchange);

/// What stands out when a worker is late, over the whole capture.
struct StragglerTally {
  int32_t rank = 0;
  int64_t collectives = 0, votes = 0, steps = 0, steps_last = 0;  // steps_last: it had the most votes of the step
  int64_t late_ns = 0, max_late_ns = 0, elapsed_ns = 0;           // sums and maximum over its votes
  int64_t waited_ns = 0;                                          // by the coordinator, over all collectives
  double work_ns = 0;                                             // mean time from rows to reply
  double rows = 0, other_rows = 0;                                // its rows and the others' mean, over its votes
  std::array<int64_t, kNumCauses> excess{};                       // sums over its votes
  double bound_ns = 0;

  std::size_t cause() const;  // of the largest excess
};
/// One for each worker, by rank. Empty with fewer than two workers.
std::vector<StragglerTally> tally_stragglers(const ReportInput& input);

}  // namespace ferry
