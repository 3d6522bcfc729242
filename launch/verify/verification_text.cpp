#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "launch/verify/verification.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kTop = 3;  // of what became shorter

template <class... Arguments>
std::string formatted(const char* format, Arguments... arguments) {
  char text[512];
  std::snprintf(text, sizeof text, format, arguments...);
  return text;
}

std::string value_text(const std::string& value) { return value.empty() ? "not given" : value; }

std::string interval_text(const Gain& gain) {
  return gain.has_interval ? formatted("%+.1f to %+.1f %%", 100 * gain.low, 100 * gain.high) : "too few to tell";
}

std::string figure_verdict(const Gain& gain, const MachineChange& machine) {
  if (!gain.has_interval) return "cannot be told: too few";
  if (gain.is_contradicted()) return "no difference: gain and interval contradict each other";
  if (!gain.is_certain()) return "no difference above noise";
  const bool is_better = gain.share > 0;
  if (!machine.may_explain(gain.share)) return is_better ? "better" : "WORSE";
  return formatted("cannot be told: the machine itself was up to %.0f %% %s",
                   100 * (is_better ? machine.faster : machine.slower), is_better ? "faster" : "slower");
}

std::string figure_line(const Verification::FigureGain& row, const MachineChange& machine) {
  return formatted("%-28s %12.3f %12.3f  %+8.1f %%  %-22s %7.1f %%  %s", row.name.c_str(), row.gain.before, row.gain.after,
                   100 * row.gain.share, interval_text(row.gain).c_str(), 100 * row.gain.noise_share,
                   figure_verdict(row.gain, machine).c_str());
}

/// Of steps that became longer and did more, or the other way round, one row says "better" and the other "WORSE": why.
void add_contradictions(const std::vector<Verification::FigureGain>& figures, std::vector<std::string>& lines) {
  constexpr std::string_view kPerSecond = " tokens/s", kPerStep = " ms a step";
  for (const Verification::FigureGain& rate : figures) {
    if (!rate.name.ends_with(kPerSecond)) continue;
    const std::string group = rate.name.substr(0, rate.name.size() - kPerSecond.size());
    const auto time =
        std::ranges::find(figures, group + std::string(kPerStep), [](const Verification::FigureGain& row) { return row.name; });
    if (time == figures.end() || !rate.gain.is_certain() || !time->gain.is_certain()) continue;
    if (rate.gain.share * time->gain.share >= 0) continue;
    lines.push_back(formatted("%s: steps of %.1f useful tokens, then of %.1f: each takes %s, and tokens/s is %s", group.c_str(),
                              rate.gain.before * time->gain.before / 1e3, rate.gain.after * time->gain.after / 1e3,
                              time->gain.share < 0 ? "longer" : "less time", rate.gain.share > 0 ? "higher" : "lower"));
  }
}

/// The largest savings where the steps became shorter, else the largest losses.
std::vector<TimeShare> top_of(const std::vector<TimeShare>& shares, double saved_us) {
  std::vector<TimeShare> ordered = shares;
  if (saved_us < 0) std::reverse(ordered.begin(), ordered.end());
  std::erase_if(ordered, [&](const TimeShare& share) { return share.saved_us() * saved_us <= 0; });
  ordered.resize(std::min(ordered.size(), kTop));
  return ordered;
}

std::string shares_text(const std::vector<TimeShare>& shares) {
  std::string text;
  for (const TimeShare& share : shares)
    text += (text.empty() ? "" : "; ") +
            formatted("%s %+.1f (%.1f to %.1f)", share.what.c_str(), -share.saved_us(), share.before_us, share.after_us);
  return text;
}

void add_difference(const TimeDifference& difference, const std::string& indent, std::vector<std::string>& lines) {
  if (difference.before_us <= 0) return;
  const std::string most = shares_text(top_of(difference.coordinator, difference.saved_us()));
  lines.push_back(indent +
                  formatted("steps, us a useful token: %+.1f (%.1f to %.1f)", difference.after_us - difference.before_us,
                            difference.before_us, difference.after_us) +
                  (most.empty() ? "" : "; most of it: " + most));
  const std::string workers = shares_text(top_of(difference.workers, difference.saved_us()));
  if (!workers.empty()) lines.push_back(indent + "beside it: " + workers);
}

std::string action_line(const Verification::ActionResult& result) {
  const Action& action = result.action;
  std::string line = "action " + action.option + " " + value_text(action.from) + " -> " + value_text(action.to) + ": ";
  const std::string predicted = action.metric + " predicted " + formatted("%+.1f %%", 100 * result.predicted);
  if (!result.was_tried)
    return line + "not tried" + (result.tried.empty() ? "" : ", the second capture has " + result.tried) + "; " +
           action.metric + formatted(" predicted from %.3f to %.3f", action.before, action.after);
  if (!result.measured) return line + "the captures have no figure '" + action.metric + "' in common: cannot be told";
  const std::string range = result.is_outside() ? formatted("; outside of what was predicted, %+.1f to %+.1f %%",
                                                            100 * (result.predicted - result.predicted_error),
                                                            100 * (result.predicted + result.predicted_error))
                                                : "";
  const char* const why = result.verdict != Verdict::kCannotBeTold ? "" : result.may_be_machine ? " (machine)" : " (noise)";
  return line + predicted + formatted(", measured %+.1f %% (", 100 * result.measured->share) + interval_text(*result.measured) +
         formatted("; noise %.1f %%): ", 100 * result.measured->noise_share) + verdict_name(result.verdict) + why + range;
}

ordered_json gain_json(const Gain& gain) {
  ordered_json interval = nullptr;
  if (gain.has_interval) interval = {gain.low, gain.high};
  return {{"before", gain.before},          {"after", gain.after}, {"gain", gain.share},
          {"interval", interval},           {"p", gain.p},         {"noise", gain.noise_share},
          {"is_certain", gain.is_certain()}};
}

ordered_json shares_json(const std::vector<TimeShare>& shares) {
  ordered_json list = ordered_json::array();
  for (const TimeShare& share : shares)
    list.push_back({{"what", share.what}, {"before_us", share.before_us}, {"after_us", share.after_us}});
  return list;
}

ordered_json difference_json(const TimeDifference& difference) {
  return {{"before_us", difference.before_us},
          {"after_us", difference.after_us},
          {"coordinator", shares_json(difference.coordinator)},
          {"workers", shares_json(difference.workers)}};
}

ordered_json action_json(const Verification::ActionResult& result) {
  const Action& action = result.action;
  ordered_json json = {
      {"kind", action.kind},       {"option", action.option}, {"from", action.from},          {"to", action.to},
      {"tried", result.was_tried}, {"metric", action.metric}, {"predicted", result.predicted}};
  json["predicted_error"] = result.predicted_error;
  json["is_outside"] = result.is_outside();
  json["may_be_machine"] = result.may_be_machine;
  json["measured"] = result.measured ? gain_json(*result.measured) : ordered_json(nullptr);
  json["verdict"] = result.was_tried ? ordered_json(verdict_name(result.verdict)) : ordered_json(nullptr);
  if (result.was_tried) json["difference"] = difference_json(result.difference);
  return json;
}

}  // namespace

std::vector<std::string> verification_lines(const Verification& verification) {
  std::vector<std::string> lines;
  for (const std::string& warning : verification.warnings) lines.push_back("warning: " + warning);
  for (const OptionChange& change : verification.changes)
    lines.push_back("changed: " + change.option + " " + value_text(change.before) + " -> " + value_text(change.after));
  if (verification.changes.empty()) lines.emplace_back("changed: nothing that the command lines say");
  lines.emplace_back();
  lines.push_back(formatted("%-28s %12s %12s  %10s  %-22s %9s", "figure", "before", "after", "gain", "95 % interval", "noise"));
  for (const Verification::FigureGain& row : verification.figures) lines.push_back(figure_line(row, verification.machine));
  add_contradictions(verification.figures, lines);
  lines.emplace_back();
  add_difference(verification.difference, "", lines);
  for (const Verification::ActionResult& result : verification.actions) {
    lines.push_back(action_line(result));
    if (result.measured) add_difference(result.difference, "    ", lines);
  }
  if (verification.actions.empty()) lines.emplace_back("the first capture's findings advise nothing");
  return lines;
}

ordered_json verification_json(const Verification& verification) {
  ordered_json changes = ordered_json::array(), figures = ordered_json::array(), actions = ordered_json::array();
  for (const OptionChange& change : verification.changes)
    changes.push_back({{"option", change.option}, {"before", change.before}, {"after", change.after}});
  for (const Verification::FigureGain& row : verification.figures) {
    ordered_json json = {{"name", row.name}, {"more_is_better", row.more_is_better}};
    json.update(gain_json(row.gain));
    json["may_be_machine"] = verification.machine.may_explain(row.gain.share);
    figures.push_back(std::move(json));
  }
  for (const Verification::ActionResult& result : verification.actions) actions.push_back(action_json(result));
  return {{"warnings", verification.warnings},
          {"machine", {{"slower", verification.machine.slower}, {"faster", verification.machine.faster}}},
          {"changes", changes},
          {"figures", figures},
          {"actions", actions},
          {"difference", difference_json(verification.difference)},
          {"exit_code", verification.exit_code()}};
}

}  // namespace ferry
