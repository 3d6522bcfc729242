#include "profiler/report/findings/action_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "profiler/report/findings/change_text.h"
#include "profiler/report/findings/format.h"

namespace ferry {
namespace {

/// Four digits, all of those before the point.
std::string figure_text(double value) {
  constexpr double kAllDigits = 1000;
  return format(value < kAllDigits ? "%.4g" : "%.0f", value);
}

/// "decode tokens/s from 1000 to 1250, 25 % more ± 5".
std::string prediction_text(const Action& action) {
  const double change = action.change();
  // The error is of time; of a figure that is work by time, its share grows with the figure.
  const double error = action.error_share * std::max(1.0, 1 + change);
  return action.metric + " from " + figure_text(action.before) + " to " + figure_text(action.after) + ", " +
         change_text(change, 0, {.up = "more", .down = "less", .times = "many"}, error);
}

}  // namespace

std::string action_text(const Action& action) {
  std::string text = "try: " + action.text + " (predicted: " + prediction_text(action) + ")";
  if (!action.command.empty()) text += ": " + action.command;
  return text;
}

nlohmann::ordered_json actions_json(const std::vector<Action>& actions) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Action& a : actions) {
    list.push_back({{"kind", a.kind},
                    {"text", a.text},
                    {"option", a.option},
                    {"from", a.from},
                    {"to", a.to},
                    {"command", a.command},
                    {"metric", a.metric},
                    {"before", a.before},
                    {"after", a.after},
                    {"prediction", prediction_text(a)},
                    {"saved_ms", a.saved_ms},
                    {"saved_share", a.saved_share},
                    {"error_share", a.error_share},
                    {"assumes", a.assumes}});
  }
  return list;
}

Table make_action_view(const std::vector<Finding>& findings) {
  Table table{
      .id = "action",
      .title = "Actions",
      .note =
          "What to do about the findings, best first. Each is predicted by itself, by replaying this capture with one "
          "option changed: gains do not add up. saved_ms is of all steps together, without warm-ups; saved_share of the "
          "time that the metric is about; error_share is by how much that may be off.",
      .columns = {{"finding"},
                  {"kind"},
                  {"option"},
                  {"from"},
                  {"to"},
                  {"metric"},
                  {"before", 4},
                  {"after", 4},
                  {"saved_ms", 3},
                  {"saved_share", 4},
                  {"error_share", 4},
                  {"assumes"},
                  {"command"}}};
  std::vector<std::pair<const Finding*, const Action*>> all;
  for (const Finding& finding : findings)
    for (const Action& action : finding.actions) all.emplace_back(&finding, &action);
  std::ranges::stable_sort(all, [](const auto& x, const auto& y) { return x.second->saved_share > y.second->saved_share; });
  for (const auto& [finding, a] : all)
    table.rows.push_back({finding->kind, a->kind, a->option, a->from, a->to, a->metric, a->before, a->after, a->saved_ms,
                          a->saved_share, a->error_share, a->assumes, a->command});
  return table;
}

}  // namespace ferry
