#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "profiler/report/lost_time/exchanges.h"
#include "profiler/report/timeline/intervals.h"

// What each rank cost: the time by which steps would have been shorter if it had not been the last. In an exchange that is the
// moment at which the last reply was back (or the coordinator ready) minus that of the second-last; a party that others would
// have waited for anyway costs nothing, however slow it was.

namespace ferry {

/// Why a rank was last.
enum class Loss : uint8_t {
  kStopped,   // none of its threads ran, though nothing kept them from it: a signal, a debugger, a paused machine
  kNoCore,    // its threads were ready and waited for a core
  kLink,      // its rows or its reply were under way for longer than the others'
  kMoreRows,  // it had more rows than the others, who take longer for as many, too
  kSlow,      // it took longer than others do for as many rows
  kOrder,     // its rows were sent after the others'
};
inline constexpr std::size_t kNumLosses = 6;
const char* loss_name(Loss loss);  // "stopped", "no core", …

struct RankLoss {
  int32_t rank = 0;
  int64_t exchanges = 0, last = 0;             // it had a part in; it was last in
  std::array<int64_t, kNumLosses> ns{};        // saved if it had not been, by cause
  std::array<int64_t, kNumLosses> usual_ns{};  // of that, outside the steps that cost most: a tenth of the time in steps
  std::vector<int64_t> more_rows_ns;           // [layer] of kMoreRows
  std::map<std::size_t, int64_t> stopped_ns;   // of kStopped, by the step's index in the timeline; of a worker
  std::vector<Interval> stops;                 // each that touches a step
  int64_t core_wait_ns = 0;                    // of the coordinator's stepping thread, or a worker's, within steps
  int64_t preemptions = 0;                     // of all its threads, within the capture
  int64_t rows = 0;                            // in exchanges that it was last in
  double other_rows = 0;                       // of the others there, mean

  int64_t at(Loss loss) const { return ns[static_cast<std::size_t>(loss)]; }
  int64_t total() const;
};

/// Whether a rank did not run at all in the slice. Where the watch itself waited for a core, the rank was not stopped.
bool is_stop(const Slice& slice);
/// [num_ranks] when each rank did not.
std::vector<IntervalSet> find_stops(const ReportInput& input);

/// The coordinator's waits for replies, by what the last one was doing meanwhile.
struct WaitParts {
  int64_t experts = 0;      // it computed
  int64_t wire = 0;         // rows or reply were under way
  int64_t not_running = 0;  // it was stopped or waited for a core
  int64_t taking = 0;       // it was back: the coordinator took replies in, or did not run itself

  void add(const WaitParts& other);
};

struct LostTime {
  std::vector<RankLoss> ranks;   // all, the coordinator first
  std::vector<WaitParts> waits;  // [timeline.steps.size()]
};
LostTime find_lost_time(const ReportInput& input);

}  // namespace ferry
