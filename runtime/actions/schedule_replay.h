#pragma once

#include <optional>
#include <vector>

#include "profiler/report/timeline/report_input.h"
#include "runtime/actions/step_clock.h"
#include "runtime/schedule/scheduler.h"

// A capture's requests once more, through the program's own scheduler, in steps that take as long as a StepClock says.

namespace ferry {

/// A request as it comes.
struct ReplayedRequest {
  int64_t num_prompt = 1;     // tokens that had to be computed: what the prefix cache had is not among them
  int64_t num_generated = 1;  // steps that give it tokens, as far as the capture saw it
  double arrival_s = 0;       // since the capture's begin, where it follows nobody
  int32_t follows = -1;       // index of the request behind whose end it came, at once: a client's next one; -1: none
  double think_s = 0;         // how long behind that
  bool is_measured = true;    // its first token is in the capture
  bool is_whole = true;       // its begin and its end are
};

/// Requests of the capture, by arrival, those that ran when it began among them.
std::vector<ReplayedRequest> find_replayed_requests(const ReportInput& input);

/// As many clients as there were at once, each of which asks again and again for what whole requests were: how much is done in
/// a time does not depend on where the capture cut requests off, nor on those that it never saw running. Empty where requests
/// do not follow each other so, none was seen whole, or it would be too many tokens to replay.
std::vector<ReplayedRequest> repeat_clients(const Timeline& timeline, const std::vector<ReplayedRequest>& seen);

struct ScheduleResult {
  double steps_s = 0;     // all steps together
  double end_s = 0;       // when the last request ended
  double ttft_p50_s = 0;  // of measured requests
  double gap_p99_s = 0;   // between two tokens of a text
  double gap_p50_s = 0;
  int64_t num_steps = 0;
  int64_t num_preemptions = 0;
  int64_t num_tokens = 0;  // one for each of those steps
};

/// Nothing where the options cannot be, or it comes to no end within kMaxReplayedSteps.
std::optional<ScheduleResult> replay_schedule(const std::vector<ReplayedRequest>& requests, SchedulerOptions options,
                                              const StepClock& clock);
inline constexpr int64_t kMaxReplayedSteps = 200'000;

}  // namespace ferry
