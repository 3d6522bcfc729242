#include <algorithm>
#include <map>
#include <tuple>

#include "profiler/report/critical_path/path_piece.h"
#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// What pieces of a row have in common; -1 is no peer.
using PathKey = std::tuple<std::size_t, int32_t, PathKind, std::string, int32_t>;  // group, rank, kind, what, peer

struct PathTime {
  int64_t count = 0, total = 0;  // ns
};

/// The group's rows: what a row's figures are divided by.
struct GroupTime {
  int64_t steps = 0, total = 0;  // ns
};

bool is_warm_up(const Timeline& timeline, std::size_t group) {
  return group >= kNumPhases && timeline.sections[group - kNumPhases].role == SectionRole::kWarmUp;
}

}  // namespace

Table make_critical_path_view(const ReportInput& input) {
  Table table{
      .id = "critical_path",
      .title = "Critical path",
      .note =
          "From the end of each step backwards, always that which everything after it had to wait for. Where the "
          "coordinator waits for a reply, the path goes with the message to the worker that sent it, over what that "
          "did before, and with its rows back. The rows of a phase add up to its steps; those of warm-ups are the last. What "
          "is here and takes less "
          "time makes steps shorter, until something else is last; what is not here was hidden behind it. Rank: of a "
          "message the one that waited for it. Wait: what no message explains, such as taking in what was there "
          "already." +
          device_note(input, "With a GPU: its time, and the host's while the GPU had nothing to do.") + " " + clock_note(input),
      .columns = {
          {"phase"}, {"rank"}, {"kind"}, {"what"}, {"peer"}, {"count"}, {"total_us", 3}, {"us_per_step", 3}, {"share", 4}}};
  const Timeline& timeline = input.timeline;
  std::vector<GroupTime> groups(kNumPhases + timeline.sections.size());
  for (const StepInfo& step : timeline.steps) {
    GroupTime& group = groups[group_index(step)];
    ++group.steps;
    group.total += step.end_ns - step.begin_ns;
  }
  std::map<PathKey, PathTime> times;
  for (const PathPiece& piece : input.critical_path) {
    const std::size_t group = group_index(timeline.steps[static_cast<std::size_t>(piece.step)]);
    PathTime& time = times[{group, piece.rank, piece.kind, path_piece_name(timeline, piece), path_piece_peer(timeline, piece)}];
    ++time.count;
    time.total += piece.end_ns - piece.begin_ns;
  }
  const std::vector<std::string> names = step_groups(timeline);
  std::vector<std::pair<std::pair<bool, double>, std::vector<Table::Cell>>> rows;  // whether they count, and their share
  for (const auto& [key, time] : times) {
    const auto& [g, rank, kind, what, peer] = key;
    const double share = static_cast<double>(time.total) / static_cast<double>(groups[g].total);
    Table::Cell peer_cell;
    if (peer >= 0) peer_cell = int64_t{peer};
    rows.push_back({{!is_warm_up(timeline, g), share},
                    {names[g], int64_t{rank}, path_kind_name(kind), what, peer_cell, time.count, us_cell(time.total),
                     to_us(time.total) / static_cast<double>(groups[g].steps), share}});
  }
  std::ranges::stable_sort(rows, std::ranges::greater(), [](const auto& row) { return row.first; });
  for (auto& [order, row] : rows) table.rows.push_back(std::move(row));
  return table;
}

}  // namespace ferry
