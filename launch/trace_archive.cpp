#include "launch/trace_archive.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/archive_text.h"
#include "profiler/archive/archive_query.h"
#include "profiler/archive/moment.h"
#include "profiler/archive/step_archive.h"
#include "profiler/export/capture_files.h"
#include "profiler/report/findings/action_text.h"
#include "profiler/report/findings/findings.h"
#include "profiler/report/incidents/worker_history.h"
#include "profiler/report/views/table.h"
#include "runtime/actions/advise.h"
#include "runtime/base/error.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kDay = 86400;  // seconds
constexpr Phase kPhases[] = {Phase::kPrefill, Phase::kDecode, Phase::kMixed};

/// What is said of the chosen steps.
struct Told {
  ArchiveAnswer answer;
  StepHistory history;
  ArchiveQuery query;
  std::vector<std::pair<int64_t, WorkerEvent>> events;  // and when they were, ns since 1970
  std::vector<Finding> findings;
  bool is_read = false;  // some of the chosen steps; else there are no events and findings
};

/// The archive of a --trace-dir, or itself.
std::filesystem::path find_archive(const std::filesystem::path& given) {
  for (const std::filesystem::path& folder : {given / "archive", given}) {
    if (holds_archive(folder)) return folder;
  }
  throw Error(ErrorCode::kNotFound,
              given.string() + " holds no archive of steps; allowed: --trace-dir of a server with --trace-sample");
}

ArchiveQuery query_of(const TraceOptions::Archive& options) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t now_s = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  ArchiveQuery query{.num_slowest = static_cast<std::size_t>(options.num_slowest)};
  for (const Phase phase : kPhases) {
    if (options.phase == phase_name(phase)) query.phase = phase;
  }
  if (!options.at.empty()) {
    query.at_ns = parse_moment(options.at, now_s).value_or(now_s) * kSecond;
    query.from_ns = *query.at_ns - kAroundNs;
    query.to_ns = *query.at_ns + kAroundNs;
  } else {
    query.to_ns = (now_s + 1) * kSecond;
    query.from_ns = query.to_ns - parse_span(options.last).value_or(kDay) * kSecond;
  }
  return query;
}

Table percentile_table(const Told& told) {
  Table table{.id = "lengths",
              .title = "How long all steps took",
              .note = "of the whole hours that the time touches; percentiles within 1 %",
              .columns = {{"phase"}, {"steps"}, {"p50_ms", 3}, {"p90_ms", 3}, {"p99_ms", 3}, {"longest_ms", 3}}};
  for (const Phase phase : kPhases) {
    if (told.query.phase && *told.query.phase != phase) continue;
    const StepSketch sketch = told.history.phase(phase, told.query.from_ns / kSecond, told.query.to_ns / kSecond);
    if (sketch.num_steps() == 0) continue;
    table.rows.push_back({std::string(phase_name(phase)), sketch.num_steps(), 1e3 * sketch.quantile(0.5),
                          1e3 * sketch.quantile(0.9), 1e3 * sketch.quantile(0.99), 1e3 * sketch.longest()});
  }
  return table;
}

/// Steps that were to be kept in these hours and were not, by reason.
CountsByReason left_out(const Told& told) {
  return told.history.left_out(told.query.from_ns / kSecond, told.query.to_ns / kSecond);
}

std::string event_text(const WorkerEvent& event) {
  std::string text = "rank " + std::to_string(event.rank) + " is " + worker_state_name(event.to);
  return event.reason.empty() ? text : text + ": " + one_line(event.reason);
}

void print_text(const Told& told) {
  std::string text = archive_headline(told.query, told.answer);
  for (const Table& table : {percentile_table(told), make_kept_view(told.answer)}) {
    if (!table.rows.empty()) text += "\n" + to_text(table, /*max_rows=*/table.rows.size());
  }
  if (const std::string counts = counts_text(left_out(told)); !counts.empty())
    text += "\nLeft out in these hours, since they came faster than they are collected and written: " + counts + "\n";
  if (!told.events.empty()) text += "\nWorkers\n";
  for (const auto& [time_ns, event] : told.events) text += "  " + moment_text(time_ns) + " " + event_text(event) + "\n";
  if (told.is_read) text += "\nFindings of these steps\n";
  if (!told.is_read && !told.answer.chosen.empty()) text += "\nNone of these steps can be read: there are no findings\n";
  for (const Finding& finding : told.findings) {
    text += std::string("  ") + severity_name(finding.severity) + ": " + printable(finding.text) + "\n";
    for (const Action& action : finding.actions) text += "    " + printable(action_text(action)) + "\n";
  }
  text = printable_lines(text);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_json(const Told& told) {
  ordered_json events = ordered_json::array(), findings = ordered_json::array();
  for (const auto& [time_ns, event] : told.events)
    events.push_back(
        {{"time_ns", time_ns}, {"rank", event.rank}, {"to", worker_state_name(event.to)}, {"reason", event.reason}});
  for (const Finding& f : told.findings)
    findings.push_back({{"severity", severity_name(f.severity)},
                        {"kind", f.kind},
                        {"rank", f.rank},
                        {"text", f.text},
                        {"actions", actions_json(f.actions)}});
  ordered_json num_left_out = ordered_json::object();
  const CountsByReason counts = left_out(told);
  for (std::size_t why = 0; why < counts.size(); ++why) num_left_out[kept_for_name(static_cast<KeptFor>(why))] = counts[why];
  const ordered_json all = {{"from_ns", told.query.from_ns},
                            {"to_ns", told.query.to_ns},
                            {"num_kept", told.answer.steps.size()},
                            {"is_elsewhere", told.answer.is_elsewhere},
                            {"is_read", told.is_read},
                            {"num_left_out", std::move(num_left_out)},
                            {"tables", {to_json(percentile_table(told)), to_json(make_kept_view(told.answer))}},
                            {"workers", std::move(events)},
                            {"findings", std::move(findings)}};
  const std::string text = all.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

/// What the chosen steps' capture tells, and its files if they are wanted.
void look_into(Told& told, const std::filesystem::path& folder, const std::filesystem::path& out) {
  std::optional<Capture> capture = read_chosen(folder, told.answer.chosen);
  told.is_read = capture.has_value();
  if (!capture) return;
  const ReportInput input(*capture);
  told.findings = find_and_advise(input);
  for (WorkerEvent& event : find_worker_history(input).events)
    told.events.emplace_back(capture->info.start_epoch_ns + event.at_ns, std::move(event));
  if (out.empty()) return;
  prepare_capture_folder(out);
  write_capture_files(out, *std::move(capture), find_and_advise);
}

}  // namespace

void show_archive(const TraceOptions& options) {
  const std::filesystem::path folder = find_archive(options.captures.front());
  Told told{.query = query_of(options.archive)};
  told.history = read_history(folder);
  told.answer = answer(read_archive(folder), told.query);
  if (!told.answer.chosen.empty()) look_into(told, folder, options.out);
  options.json ? print_json(told) : print_text(told);
  if (told.is_read || options.out.empty()) return;
  const char* why = told.answer.chosen.empty() ? "no kept step is of that time and phase" : "none of these steps can be read";
  throw Error(ErrorCode::kNotFound, why + (": nothing for " + options.out.string()));
}

}  // namespace ferry
