#include <string>
#include <vector>

#include "profiler/report/lost_time/lost_time.h"
#include "profiler/report/lost_time/waiting.h"
#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// One row's sums over its windows, of the coordinator.
struct PhaseSums {
  int64_t steps = 0, tokens = 0, useful = 0, sequences = 0;
  Breakdown time;
  WaitParts waits;

  void add(const Breakdown& b) {
    time.window += b.window;
    time.computing += b.computing;
    time.communication += b.communication;
    time.overlapped += b.overlapped;
    time.exposed += b.exposed;
    time.free += b.free;
  }
};

std::vector<Table::Cell> make_row(const std::string& name, const PhaseSums& sums, int64_t wall_ns) {
  const auto steps = static_cast<double>(sums.steps);
  const Breakdown& time = sums.time;
  return {name,
          sums.steps,
          sums.tokens,
          ratio_cell(static_cast<double>(sums.sequences), steps),
          us_cell(time.window),
          ratio_cell(static_cast<double>(time.window), static_cast<double>(wall_ns)),
          ratio_cell(to_us(time.window), steps),
          ratio_cell(static_cast<double>(sums.useful) * 1e9, sums.steps > 0 ? static_cast<double>(time.window) : 0),
          us_cell(time.computing),
          us_cell(time.exposed),
          us_cell(time.overlapped),
          us_cell(time.free),
          us_cell(sums.waits.experts),
          us_cell(sums.waits.wire),
          us_cell(sums.waits.not_running)};
}

}  // namespace

Table make_phase_view(const ReportInput& input) {
  Table table{
      .id = "phase",
      .title = "Phases",
      .note =
          "The coordinator's wall time; computing + exposed + free = wall. Tokens are rows, those of drafts included; "
          "tokens_per_s leaves out the drafts that were wrong. Pictures: the vision tower works while no step runs (what it "
          "does for others beside a step is part of that step). Starved: neither runs although a request waits to be "
          "scheduled; idle: none waits; aside: the program was busy with itself, as a benchmark that measures the roofs is. "
          "Steps that a "
          "benchmark warms up with, and those of each size, are rows of their own. A step that began before the capture is in "
          "no row. waits: of the coordinator for replies, by what the last reply was waiting for: its experts, the wire, or "
          "that its worker ran at all.",
      .columns = {{"phase"},
                  {"steps"},
                  {"tokens"},
                  {"sequences_per_step", 2},
                  {"wall_us", 3},
                  {"wall_share", 4},
                  {"us_per_step", 3},
                  {"tokens_per_s", 1},
                  {"computing_us", 3},
                  {"exposed_us", 3},
                  {"overlapped_us", 3},
                  {"free_us", 3},
                  {"waits_experts_us", 3},
                  {"waits_wire_us", 3},
                  {"waits_not_running_us", 3}}};
  const LostTime lost = find_lost_time(input);
  const Timeline& timeline = input.timeline;
  const RankActivity& activity = input.activity.at(0);
  const std::vector<std::string> groups = step_groups(timeline);
  std::vector<PhaseSums> sums_of(groups.size());
  for (std::size_t s = 0; s < timeline.steps.size(); ++s) {
    const StepInfo& step = timeline.steps[s];
    PhaseSums& sums = sums_of[group_index(step)];
    sums.waits.add(lost.waits[s]);
    ++sums.steps;
    sums.tokens += step.num_tokens;
    sums.useful += step.num_useful();
    sums.sequences += step.num_sequences;
    sums.add(break_down(activity, {step.begin_ns, step.end_ns}));
  }
  const IntervalSet pictures = find_pictures(timeline);
  const IntervalSet gaps = subtract(find_gaps(input), pictures), waiting = find_waiting(input);
  PhaseSums starved, idle, aside, tower;
  for (const Interval& stretch : find_asides(timeline)) aside.add(break_down(activity, stretch));
  for (const Interval& stretch : pictures) tower.add(break_down(activity, stretch));
  for (const Interval& gap : intersect(gaps, waiting)) starved.add(break_down(activity, gap));
  for (const Interval& gap : subtract(gaps, waiting)) idle.add(break_down(activity, gap));

  const bool has_gaps = input.capture.info.selection.empty();  // else nobody knows what they were
  const int64_t wall_ns = total(find_recorded(input));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const bool is_phase = g < kNumPhases && timeline.sections.empty();
    if (is_phase || sums_of[g].steps > 0) table.rows.push_back(make_row(groups[g], sums_of[g], wall_ns));
  }
  if (tower.time.window > 0) table.rows.push_back(make_row("pictures", tower, wall_ns));
  if (has_gaps) table.rows.push_back(make_row("starved", starved, wall_ns));
  if (has_gaps) table.rows.push_back(make_row("idle", idle, wall_ns));
  if (aside.time.window > 0) table.rows.push_back(make_row("aside", aside, wall_ns));
  return table;
}

}  // namespace ferry
