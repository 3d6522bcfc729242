#include "launch/trace_archive.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/archive/archive_query.h"
#include "profiler/archive/moment.h"
#include "profiler/export/capture_files.h"
#include "profiler/report/findings/findings.h"
#include "profiler/report/incidents/worker_history.h"
#include "profiler/report/views/table.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kDay = 86400;  // seconds
constexpr std::size_t kShownSteps = 30;
constexpr Phase kPhases[] = {Phase::kPrefill, Phase::kDecode, Phase::kMixed};

/// What is said of the chosen steps.
struct Told {
  ArchiveAnswer answer;
  StepHistory history;
  ArchiveQuery query;
  std::vector<std::pair<int64_t, WorkerEvent>> events;  // and when they were, ns since 1970
  std::vector<Finding> findings;
};

/// The archive of a --trace-dir, or itself.
std::filesystem::path find_archive(const std::filesystem::path& given) {
  std::error_code code;
  for (const std::filesystem::path& folder : {given / "archive", given}) {
    if (std::filesystem::exists(folder / "index.jsonl", code)) return folder;
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

Table step_table(const std::vector<SegmentEntry>& steps) {
  Table table{.id = "kept",
              .title = "Steps that were kept",
              .note = "those that a capture of them holds",
              .columns = {{"time"}, {"why"}, {"step"}, {"phase"}, {"rows"}, {"sequences"}, {"ms", 3}, {"file"}}};
  for (const SegmentEntry& step : steps) {
    table.rows.push_back({moment_text(step.time_ns), std::string(kept_for_name(step.why)), step.facts.step,
                          std::string(phase_name(step.facts.phase)), step.facts.num_rows, step.facts.num_sequences,
                          1e3 * step.facts.seconds, step.file});
  }
  return table;
}

std::string event_text(const WorkerEvent& event) {
  std::string text = "rank " + std::to_string(event.rank) + " is " + worker_state_name(event.to);
  return event.reason.empty() ? text : text + ": " + one_line(event.reason);
}

std::string headline(const Told& told) {
  const std::vector<SegmentEntry>& steps = told.answer.steps;
  std::string text = told.query.at_ns ? "Around " + moment_text(*told.query.at_ns).substr(0, 19) + ", 5 minutes to both sides: "
                                      : "Since " + moment_text(told.query.from_ns).substr(0, 19) + ": ";
  if (steps.empty()) return text + "no step was kept\n";
  if (told.answer.is_elsewhere)
    return text + "no step was kept; the nearest ones, from " + moment_text(steps.front().time_ns) + " to " +
           moment_text(steps.back().time_ns) + "\n";
  int64_t num_anomalies = 0;
  const SegmentEntry* slowest = &steps.front();
  for (const SegmentEntry& step : steps) {
    num_anomalies += is_anomaly(step.why) ? 1 : 0;
    if (step.facts.seconds > slowest->facts.seconds) slowest = &step;
  }
  char length[48];
  std::snprintf(length, sizeof length, "%.3f ms", 1e3 * slowest->facts.seconds);
  return text + std::to_string(steps.size()) + " steps were kept, " + std::to_string(num_anomalies) +
         " of them since they stood out; the slowest, " + phase_name(slowest->facts.phase) + " with " +
         std::to_string(slowest->facts.num_rows) + " rows, took " + length + " at " + moment_text(slowest->time_ns) + "\n";
}

void print_text(const Told& told) {
  std::string text = headline(told);
  for (const Table& table : {percentile_table(told), step_table(told.answer.chosen)}) {
    if (!table.rows.empty()) text += "\n" + to_text(table, kShownSteps);
  }
  if (!told.events.empty()) text += "\nWorkers\n";
  for (const auto& [time_ns, event] : told.events) text += "  " + moment_text(time_ns) + " " + event_text(event) + "\n";
  if (!told.answer.chosen.empty()) text += "\nFindings of these steps\n";
  for (const Finding& finding : told.findings)
    text += std::string("  ") + severity_name(finding.severity) + ": " + finding.text + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_json(const Told& told) {
  ordered_json events = ordered_json::array(), findings = ordered_json::array();
  for (const auto& [time_ns, event] : told.events)
    events.push_back(
        {{"time_ns", time_ns}, {"rank", event.rank}, {"to", worker_state_name(event.to)}, {"reason", event.reason}});
  for (const Finding& f : told.findings)
    findings.push_back({{"severity", severity_name(f.severity)}, {"kind", f.kind}, {"rank", f.rank}, {"text", f.text}});
  const ordered_json all = {{"from_ns", told.query.from_ns},
                            {"to_ns", told.query.to_ns},
                            {"num_kept", told.answer.steps.size()},
                            {"is_elsewhere", told.answer.is_elsewhere},
                            {"tables", {to_json(percentile_table(told)), to_json(step_table(told.answer.chosen))}},
                            {"workers", std::move(events)},
                            {"findings", std::move(findings)}};
  const std::string text = all.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

/// What the chosen steps' capture tells, and its files if they are wanted.
void look_into(Told& told, const std::filesystem::path& folder, const std::filesystem::path& out) {
  Capture capture = read_chosen(folder, told.answer.chosen);
  const ReportInput input(capture);
  told.findings = find_problems(input);
  for (WorkerEvent& event : find_worker_history(input).events)
    told.events.emplace_back(capture.info.start_epoch_ns + event.at_ns, std::move(event));
  if (out.empty()) return;
  prepare_capture_folder(out);
  write_capture_files(out, std::move(capture));
}

}  // namespace

void show_archive(const TraceOptions& options) {
  const std::filesystem::path folder = find_archive(options.captures.front());
  Told told{.query = query_of(options.archive)};
  told.history = read_history(folder);
  told.answer = answer(read_archive(folder), told.query);
  if (!told.answer.chosen.empty()) look_into(told, folder, options.out);
  options.json ? print_json(told) : print_text(told);
  if (told.answer.chosen.empty() && !options.out.empty())
    throw Error(ErrorCode::kNotFound, "no kept step is of that time and phase: nothing for " + options.out.string());
}

}  // namespace ferry
