#include "launch/verify/same_work.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>
#include <set>

#include "launch/verify/option_changes.h"
#include "profiler/report/incidents/incidents.h"
#include "profiler/report/incidents/worker_history.h"
#include "profiler/report/statistics.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr double kSameLength = 1.25;   // of the median prompt, up to which it is the same work
constexpr double kSameMachine = 0.10;  // of a roof, from which on the machine was another one

std::string share_text(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %% %s", 100 * std::abs(share), share < 0 ? "slower" : "faster");
  return text;
}

/// 0 where the machine was the same, or is not known.
double roof_change(double before, double after) {
  const bool is_other = before > 0 && after > 0 && std::abs(after / before - 1) > kSameMachine;
  return is_other ? after / before - 1 : 0;
}

/// A run measures the arithmetic that its own weights and rows take: of another kind it is no measure of the machine.
double arithmetic_change(const CaptureInfo& before, const CaptureInfo& after) {
  const auto is_of_arithmetic = [](const OptionChange& change) {
    return change.option == "--quantize" || change.option == "--dtype";
  };
  if (std::ranges::any_of(find_option_changes(before, after), is_of_arithmetic)) return 0;
  return roof_change(before.flops_per_s, after.flops_per_s);
}

/// What an operator computes for a row follows from the model's shapes, however its weights are kept.
bool have_same_shapes(const ModelFacts& before, const ModelFacts& after) {
  for (const OperatorFacts& a : before.operators) {
    for (const OperatorFacts& b : after.operators)
      if (a.zone == b.zone && (a.flop != b.flop || a.num_layers != b.num_layers)) return false;
  }
  return true;
}

std::string shape_text(const CaptureInfo& info) {
  const std::size_t experts = info.expert_tokens.empty() ? 0 : info.expert_tokens.front().size();
  return "'" + info.model.name + "' of " + std::to_string(info.model.layer_types.size()) + " layers, " +
         std::to_string(experts) + " experts, " + std::to_string(info.model.top_k) + " of them a token";
}

/// The layers that a step runs through; one that guesses ahead comes and goes with its option.
std::vector<std::string> trunk_of(const ModelFacts& model) {
  std::vector<std::string> types = model.layer_types;
  std::erase(types, "mtp");
  return types;
}

void check_model(const CaptureInfo& before, const CaptureInfo& after, std::vector<std::string>& warnings) {
  const auto num_experts = [](const CaptureInfo& info) {
    return info.expert_tokens.empty() ? 0 : info.expert_tokens[0].size();
  };
  const bool is_same = trunk_of(before.model) == trunk_of(after.model) && before.model.top_k == after.model.top_k &&
                       num_experts(before) == num_experts(after) && have_same_shapes(before.model, after.model);
  if (!is_same)
    throw_invalid("trace verify: the captures are of other models: " + shape_text(before) + ", then " + shape_text(after));
  if (before.model.name != after.model.name)
    warnings.push_back("the model is called '" + before.model.name + "', then '" + after.model.name +
                       "'; its shapes are the same");
}

std::optional<double> median_of(const Timeline& timeline, bool of_prompts) {
  std::vector<double> lengths;
  for (const RequestInfo& request : timeline.requests) {
    const bool is_known = of_prompts ? request.num_prompt > 0 : request.finished_ns && request.num_generated > 0;
    if (is_known) lengths.push_back(static_cast<double>(of_prompts ? request.num_prompt : request.num_generated));
  }
  return lengths.empty() ? std::nullopt : std::optional(median(lengths));
}

bool differ(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b && std::max(*a, *b) > kSameLength * std::min(*a, *b);
}

std::string lengths_text(double before, double after) {
  char text[64];
  std::snprintf(text, sizeof text, "%.0f tokens, then %.0f, in the median", before, after);
  return text;
}

void check_work(const ReportInput& before, const ReportInput& after, std::vector<std::string>& warnings) {
  const std::string a = read_command_line(before.capture.info.command).command,
                    b = read_command_line(after.capture.info.command).command;
  if (a != b) throw_invalid("trace verify: the captures are of other work: 'ferry " + a + "', then 'ferry " + b + "'");
  if (!before.timeline.sections.empty() || !after.timeline.sections.empty()) return;  // steps of a size have names of their own
  const std::optional<double> prompts_a = median_of(before.timeline, true), prompts_b = median_of(after.timeline, true);
  if (differ(prompts_a, prompts_b))
    throw_invalid("trace verify: the captures are of other work: prompts of " + lengths_text(*prompts_a, *prompts_b) +
                  "; allowed: a difference of a quarter");
  const std::optional<double> answers_a = median_of(before.timeline, false), answers_b = median_of(after.timeline, false);
  if (differ(answers_a, answers_b)) warnings.push_back("answers of " + lengths_text(*answers_a, *answers_b));
}

std::set<int32_t> lost_ranks(const Capture& capture) {
  std::set<int32_t> ranks;
  for (const RankCapture& rank : capture.ranks)
    if (rank.threads.empty()) ranks.insert(rank.rank);
  return ranks;
}

/// Of a rank that was lost in either capture there is nothing to compare.
std::set<std::string> hosts_of(const Capture& capture, const Capture& other) {
  const std::set<int32_t> lost = lost_ranks(capture), lost_by_other = lost_ranks(other);
  std::set<std::string> hosts;
  for (const RankCapture& rank : capture.ranks)
    if (!lost.contains(rank.rank) && !lost_by_other.contains(rank.rank)) hosts.insert(rank.host);
  return hosts;
}

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void warn_of_machine(const Capture& before, const Capture& after, std::vector<std::string>& warnings) {
  if (before.info.version != after.info.version)
    warnings.push_back("Ferry's version differs: " + before.info.version + ", then " + after.info.version);
  const std::set<std::string> first = hosts_of(before, after), second = hosts_of(after, before);
  if (first != second) warnings.push_back("hosts differ: " + joined(first) + ", then " + joined(second));
  const auto warn_of_roof = [&](const char* does, double share) {
    if (share != 0)
      warnings.push_back(std::string("the machine itself ") + does + " " + share_text(share) + " in the second capture");
  };
  warn_of_roof("read memory", roof_change(before.info.read_bytes_per_s, after.info.read_bytes_per_s));
  warn_of_roof("multiplied", arithmetic_change(before.info, after.info));
}

/// One process recorded no two captures of the same moment.
bool is_one_capture(const Capture& before, const Capture& after) {
  const RankCapture& a = before.ranks.front();
  const RankCapture& b = after.ranks.front();
  return before.info.command == after.info.command && before.info.start_epoch_ns == after.info.start_epoch_ns &&
         a.boot_id == b.boot_id && a.pid == b.pid && a.begin == b.begin && a.end == b.end;
}

/// Steps that were kept for their lengths say little of how long all took.
void warn_of_selection(const CaptureInfo& info, const char* which, std::vector<std::string>& warnings) {
  int64_t num_steps = 0;
  for (const auto& [why, count] : info.selection) num_steps += count;
  if (num_steps == 0) return;
  warnings.push_back(std::string("the ") + which + " capture is a selection, " + std::to_string(num_steps) +
                     " kept steps of an archive: how long all steps took it does not tell");
}

/// Steps without a worker, or beside one that is late, are not what the options alone make of them.
void warn_of_workers(const ReportInput& input, const char* which, std::vector<std::string>& warnings) {
  constexpr std::size_t kNamed = 4;
  std::vector<std::string> what;
  int64_t ns = 0;
  for (const Incident& incident : find_incidents(input.timeline, find_worker_history(input))) {
    if (std::ranges::none_of(incident.parts, [](const Incident::Part& part) { return part.rank >= 0; })) continue;
    ns += incident.when.end - incident.when.begin;
    for (const Incident::Part& part : incident.parts) {
      if (std::ranges::find(what, what_happened(part)) == what.end()) what.push_back(what_happened(part));
    }
  }
  if (what.empty()) return;
  std::string text = std::string("in the ") + which + " capture ";
  for (std::size_t i = 0; i < std::min(kNamed, what.size()); ++i) text += (i == 0 ? "" : ", ") + what[i];
  if (what.size() > kNamed) text += " and " + std::to_string(what.size() - kNamed) + " more";
  char times[64];
  std::snprintf(times, sizeof times, ": that took %.2f of its %.2f s", static_cast<double>(ns) / 1e9,
                static_cast<double>(input.timeline.end_ns - input.timeline.begin_ns) / 1e9);
  warnings.push_back(text + times);
}

}  // namespace

MachineChange find_machine_change(const CaptureInfo& before, const CaptureInfo& after) {
  MachineChange change;
  for (const double share : {roof_change(before.read_bytes_per_s, after.read_bytes_per_s), arithmetic_change(before, after)}) {
    change.slower = std::max(change.slower, -share);
    change.faster = std::max(change.faster, share);
  }
  return change;
}

std::vector<std::string> selection_warnings(const CaptureInfo& before, const CaptureInfo& after) {
  std::vector<std::string> warnings;
  warn_of_selection(before, "first", warnings);
  warn_of_selection(after, "second", warnings);
  return warnings;
}

std::vector<std::string> check_same_work(const ReportInput& before, const ReportInput& after) {
  std::vector<std::string> warnings;
  check_model(before.capture.info, after.capture.info, warnings);
  check_work(before, after, warnings);
  if (is_one_capture(before.capture, after.capture)) warnings.emplace_back("both are the same capture");
  warn_of_machine(before.capture, after.capture, warnings);
  warn_of_workers(before, "first", warnings);
  warn_of_workers(after, "second", warnings);
  std::ranges::move(selection_warnings(before.capture.info, after.capture.info), std::back_inserter(warnings));
  for (const OptionChange& change : find_option_changes(before.capture.info, after.capture.info)) {
    if (is_workload_option(change.option))
      warnings.push_back(change.option + " differs: what only one capture did is left out");
  }
  return warnings;
}

}  // namespace ferry
