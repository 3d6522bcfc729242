#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/span_record.h"

namespace ferry {

class Recorder;

inline constexpr int kNumPhases = 3;

/// What a coordinator did in the time just past, by the spans that are always recorded (TraceLevel::kSteps). A step counts
/// where it ended; its time, as all others, is that inside of the window.
struct RecentActivity {
  struct Steps {
    int64_t steps = 0;
    int64_t rows = 0;       // of all of them
    int64_t sequences = 0;  // likewise: each counts once a step
    double seconds = 0;
  };
  /// Rows that travelled to an expert worker and back.
  struct Peer {
    int32_t rank = 0;
    int64_t exchanges = 0;  // one a layer and micro-batch
    int64_t rows = 0;
    int64_t bytes_out = 0, bytes_in = 0;
    double round_trip_s = 0;  // from the request's post to the reply, all exchanges together
    double wait_s = 0;        // of that, that the coordinator stood still for this worker
  };

  double window_s = 0;                       // as asked for, or what the rings hold of it; 0: nothing is recorded
  std::array<Steps, kNumPhases> by_phase{};  // by Phase
  double draft_s = 0;                        // guessing, inside of steps
  double core_wait_s = 0;                    // threads of this process were ready and had no core, all of them together
  double not_running_s = 0;                  // the whole process was stopped
  std::vector<Peer> peers;                   // that had exchanges, by rank
};

/// What `records` say of the ticks from `begin` to `end`, of which each takes `ns_per_tick`.
RecentActivity summarize(std::span<const SpanRecord> records, uint64_t begin, uint64_t end, double ns_per_tick);

/// What the rings hold of the last `seconds`. Copies them, two milliseconds for full ones: for people who look, not for steps.
RecentActivity look_back(const Recorder& recorder, double seconds);

}  // namespace ferry
