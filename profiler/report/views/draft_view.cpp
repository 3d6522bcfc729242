#include <algorithm>
#include <vector>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// One row's sums over its steps.
struct DraftSums {
  int64_t steps = 0, verifying_steps = 0, drafts = 0, kept = 0;
  double wall_ns = 0, drafting_ns = 0, wasted_ns = 0;

  void add(const StepInfo& step, double step_drafting_ns) {
    const auto length_ns = static_cast<double>(step.end_ns - step.begin_ns);
    const auto num_wrong = static_cast<double>(step.num_drafts - step.num_kept);
    ++steps;
    verifying_steps += step.num_drafts > 0 ? 1 : 0;
    drafts += step.num_drafts;
    kept += step.num_kept;
    wall_ns += length_ns;
    drafting_ns += step_drafting_ns;
    if (step.num_tokens > 0) wasted_ns += (length_ns - step_drafting_ns) * num_wrong / static_cast<double>(step.num_tokens);
  }
};

std::vector<Table::Cell> make_row(const std::string& name, const DraftSums& sums) {
  const double useful_ns = sums.wall_ns - sums.drafting_ns - sums.wasted_ns;
  std::vector<Table::Cell> row = {name, sums.steps, sums.verifying_steps, sums.drafts, sums.kept, sums.wall_ns / 1e3};
  for (const double ns : {useful_ns, sums.drafting_ns, sums.wasted_ns}) row.emplace_back(ns / 1e3);
  for (const double ns : {useful_ns, sums.drafting_ns, sums.wasted_ns}) row.push_back(ratio_cell(ns, sums.wall_ns));
  return row;
}

/// Of each step, how long it guessed.
std::vector<double> drafting_ns_of(const Timeline& timeline) {
  std::vector<double> drafting(timeline.steps.size(), 0);
  for_each_step_slice(timeline, [&](std::size_t step, const Slice& slice) {
    if (slice.zone == Zone::kDraft) drafting[step] += static_cast<double>(slice.duration_ns());
  });
  return drafting;
}

}  // namespace

Table make_draft_view(const ReportInput& input) {
  Table table{
      .id = "draft",
      .title = "Drafts",
      .note =
          "The coordinator's steps; useful + drafting + wasted = wall. Drafting: guessing what follows, behind the step's "
          "tokens. Wasted: the rest of each step by the share of its rows that were drafts and turned out wrong, an "
          "estimate that takes all rows of a step to cost the same.",
      .columns = {{"phase"},
                  {"steps"},
                  {"verifying_steps"},
                  {"drafts"},
                  {"kept"},
                  {"wall_us", 3},
                  {"useful_us", 3},
                  {"drafting_us", 3},
                  {"wasted_us", 3},
                  {"useful_share", 4},
                  {"drafting_share", 4},
                  {"wasted_share", 4}}};
  const Timeline& timeline = input.timeline;
  const std::vector<std::string> groups = step_groups(timeline);
  std::vector<DraftSums> sums_of(groups.size());
  const std::vector<double> drafting = drafting_ns_of(timeline);
  bool has_drafts = false;
  for (std::size_t s = 0; s < timeline.steps.size(); ++s) {
    sums_of[group_index(timeline.steps[s])].add(timeline.steps[s], drafting[s]);
    has_drafts = has_drafts || drafting[s] > 0 || timeline.steps[s].num_drafts > 0;
  }
  for (std::size_t g = 0; has_drafts && g < groups.size(); ++g)
    if (sums_of[g].steps > 0) table.rows.push_back(make_row(groups[g], sums_of[g]));
  return table;
}

Table make_draft_place_view(const ReportInput& input) {
  Table table{.id = "draft_place",
              .title = "Drafts by place",
              .note = "How many first, second, … drafts of a sequence's step were tried, and how many of them were right.",
              .columns = {{"place"}, {"tried"}, {"right"}, {"right_share", 4}}};
  struct Place {
    int64_t tried = 0, right = 0;
  };
  std::vector<Place> places;
  for (const Slice& slice : input.timeline.slices) {
    if (slice.zone != Zone::kRequestVerify) continue;
    constexpr std::size_t kMostPlaces = 255;  // whatever a file says
    const std::size_t num_tried = std::min<std::size_t>(verify_drafts(slice.b), kMostPlaces);
    if (num_tried > places.size()) places.resize(num_tried);
    for (std::size_t i = 0; i < num_tried; ++i) {
      ++places[i].tried;
      places[i].right += i < verify_kept(slice.b) ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i)
    table.rows.push_back({static_cast<int64_t>(i + 1), places[i].tried, places[i].right,
                          ratio_cell(static_cast<double>(places[i].right), static_cast<double>(places[i].tried))});
  return table;
}

}  // namespace ferry
