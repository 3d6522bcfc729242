#include "launch/archive_text.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "profiler/archive/moment.h"

namespace ferry {
namespace {

/// "7 sample, 2 slow, 1 long", in the order of KeptFor.
std::string reasons_text(const std::vector<SegmentEntry>& steps) {
  std::map<KeptFor, int64_t> counts;
  for (const SegmentEntry& step : steps) ++counts[step.why];
  std::string text;
  for (const auto& [why, count] : counts) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + kept_for_name(why);
  return text;
}

}  // namespace

std::string archive_headline(const ArchiveQuery& query, const ArchiveAnswer& answer) {
  const std::vector<SegmentEntry>& steps = answer.steps;
  std::string text = query.at_ns ? "Around " + moment_text(*query.at_ns).substr(0, 19) + ", 5 minutes to both sides: "
                                 : "Since " + moment_text(query.from_ns).substr(0, 19) + ": ";
  if (steps.empty()) return text + "no step was kept\n";
  if (answer.is_elsewhere)
    return text + "no step was kept; the nearest ones, from " + moment_text(steps.front().time_ns) + " to " +
           moment_text(steps.back().time_ns) + "\n";
  const SegmentEntry& slowest = *std::ranges::max_element(steps, {}, [](const SegmentEntry& e) { return e.facts.seconds; });
  char length[48];
  std::snprintf(length, sizeof length, "%.3f ms", 1e3 * slowest.facts.seconds);
  return text + std::to_string(steps.size()) + " steps were kept (" + reasons_text(steps) + "); the slowest, " +
         phase_name(slowest.facts.phase) + " with " + std::to_string(slowest.facts.num_rows) + " rows, took " + length +
         " at " + moment_text(slowest.time_ns) + "\n";
}

Table make_kept_view(const ArchiveAnswer& answer) {
  Table table{.id = "kept",
              .title = "Steps that were kept",
              .note = "those that a capture of them holds",
              .columns = {{"time"}, {"why"}, {"step"}, {"phase"}, {"rows"}, {"sequences"}, {"ms", 3}, {"file"}}};
  if (answer.chosen.size() < answer.steps.size())
    table.note += ": " + std::to_string(answer.chosen.size()) + " (" + reasons_text(answer.chosen) + ") of the " +
                  std::to_string(answer.steps.size());
  for (const SegmentEntry& step : answer.chosen) {
    table.rows.push_back({moment_text(step.time_ns), std::string(kept_for_name(step.why)), step.facts.step,
                          std::string(phase_name(step.facts.phase)), step.facts.num_rows, step.facts.num_sequences,
                          1e3 * step.facts.seconds, step.file});
  }
  return table;
}

}  // namespace ferry
