#include <algorithm>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// When a rank waited for another, and when it computed or communicated, over the whole capture.
struct RankWaits {
  IntervalSet waiting;
  IntervalSet working;
};

std::vector<RankWaits> find_waits(const ReportInput& input) {
  std::vector<std::vector<Interval>> spans(input.capture.ranks.size());
  for (const Slice& slice : input.timeline.slices) {
    if (!is_peer_wait(slice.zone)) continue;
    const int32_t rank = input.timeline.lanes[static_cast<std::size_t>(slice.lane)].rank;
    spans[static_cast<std::size_t>(rank)].push_back({slice.begin_ns, slice.end_ns});
  }
  std::vector<RankWaits> waits;
  for (std::size_t r = 0; r < spans.size(); ++r) {
    const RankActivity& activity = input.activity[r];
    waits.push_back({make_interval_set(std::move(spans[r])), unite(activity.computing, activity.communication)});
  }
  return waits;
}

/// From the window's begin to the first operator or message in it; the whole window if there is none.
int64_t preparing_ns(const IntervalSet& working, Interval window) {
  const auto first =
      std::partition_point(working.begin(), working.end(), [&](const Interval& i) { return i.end <= window.begin; });
  const int64_t at = first == working.end() ? window.end : std::clamp(first->begin, window.begin, window.end);
  return at - window.begin;
}

}  // namespace

Table make_step_view(const ReportInput& input) {
  Table table{.id = "step",
              .title = "Steps",
              .note =
                  "Every rank's time in the coordinator's steps; computing + exposed + free = window, overlapped + exposed "
                  "= communication. Bubble: the rank waits for another; stage: the rest. Preparing: until its first "
                  "operator or message. " +
                  clock_note(input),
              .columns = {{"step"},
                          {"rank"},
                          {"phase"},
                          {"tokens"},
                          {"sequences"},
                          {"begin_us", 3},
                          {"window_us", 3},
                          {"computing_us", 3},
                          {"exposed_us", 3},
                          {"overlapped_us", 3},
                          {"communication_us", 3},
                          {"free_us", 3},
                          {"stage_us", 3},
                          {"bubble_us", 3},
                          {"preparing_us", 3},
                          {"clock_bound_us", 3}}};
  const std::vector<RankWaits> waits = find_waits(input);
  const std::vector<std::string> groups = step_groups(input.timeline);
  for (const StepInfo& step : input.timeline.steps) {
    const Interval window{step.begin_ns, step.end_ns};
    for (std::size_t r = 0; r < input.activity.size(); ++r) {
      const Breakdown b = break_down(input.activity[r], window);
      const int64_t bubble_ns = total(clip(waits[r].waiting, window));
      table.rows.push_back(
          {static_cast<int64_t>(step.step), static_cast<int64_t>(r), groups[group_index(step)], step.num_tokens,
           step.num_sequences, us_cell(step.begin_ns), us_cell(b.window), us_cell(b.computing), us_cell(b.exposed),
           us_cell(b.overlapped), us_cell(b.communication), us_cell(b.free), us_cell(b.window - bubble_ns), us_cell(bubble_ns),
           us_cell(preparing_ns(waits[r].working, window)), clock_bound_ns(input, static_cast<int32_t>(r), 0) / 1e3});
    }
  }
  return table;
}

}  // namespace ferry
