#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/report/timeline/intervals.h"
#include "profiler/report/timeline/report_input.h"

// When requests waited, and for what.

namespace ferry {

/// When the coordinator recorded what it did: the whole capture; of kept steps of an archive the steps, asides and pictures.
IntervalSet find_recorded(const ReportInput& input);

/// When a request was queued and not yet scheduled; what lies before or after the capture is cut off. Nothing for one that ran
/// when the capture began, and among kept steps of an archive for one of which either end was not recorded.
std::optional<Interval> find_queue_time(const ReportInput& input, const RequestInfo& request);

/// When at least one request was queued and not yet scheduled, as far as that was recorded.
IntervalSet find_waiting(const ReportInput& input);

/// What was recorded without the coordinator's steps, those that began before it included, and without find_asides().
IntervalSet find_gaps(const ReportInput& input);

/// When the vision tower worked and no step ran.
IntervalSet find_pictures(const Timeline& timeline);

/// When the program was busy with itself instead of steps, as a benchmark is that measures the machine.
IntervalSet find_asides(const Timeline& timeline);

/// Time with waiting requests by what they waited for, in ns: a slot (as many sequences run as may), KV blocks (a slot is free,
/// but fewer blocks than a running sequence holds), or a step (neither is short: none was planned yet).
struct WaitReasons {
  int64_t slots = 0, kv_blocks = 0, steps = 0;
  double mean_running = 0;  // sequences, over that time
  int64_t max_running = 0;  // that may run, 0 if not known
  int64_t max_blocks = 0;

  int64_t total() const { return slots + kv_blocks + steps; }
  const char* worst() const;  // "slots", "KV blocks" or "steps"
};
WaitReasons find_wait_reasons(const ReportInput& input, const IntervalSet& waiting);

}  // namespace ferry
