#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "launch/commands.h"
#include "launch/trace_archive.h"
#include "launch/verify/same_work.h"
#include "launch/verify/verification.h"
#include "moe/routing/routing_export.h"
#include "moe/routing/routing_summary.h"
#include "profiler/archive/segment.h"
#include "profiler/capture_merge.h"
#include "profiler/export/capture_files.h"
#include "profiler/export/otlp_trace.h"
#include "profiler/report/report.h"
#include "profiler/report/views/capture_diff.h"
#include "profiler/report/views/views.h"
#include "profiler/write_file.h"
#include "runtime/actions/advise.h"
#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/server/otlp/span_exporter.h"

// `ferry trace`: what can be made of captures afterwards.

namespace ferry {
namespace {

/// Of what comes from captures nothing but line breaks commands the terminal.
void print(const std::string& text) {
  const std::string shown = printable_lines(text);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

std::string counted(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// For tables, which a merged capture has none of.
Capture read_one_run(const std::filesystem::path& directory) {
  Capture capture = read_capture(directory);
  if (is_merged(capture))
    throw_invalid(directory.string() +
                  " holds several runs, merged; allowed: a capture of one run, such as those it was made of");
  return capture;
}

/// What routers chose is beside the capture where that was asked for; a damaged file is as good as none.
Capture with_routing(Capture capture, const std::filesystem::path& directory) {
  std::error_code code;
  if (!std::filesystem::exists(directory / "routing.ferryrt", code)) return capture;
  try {
    capture.routing = encode_routing_trace(read_routing_trace(directory));
  } catch (const Error& error) {
    std::fprintf(stderr, "ferry: warning: %s\n", error.what());
  }
  return capture;
}

/// Whoever asks for steps is told if there are none of them.
void check_steps(const Timeline& timeline, const StepRange& wanted) {
  const auto is_wanted = [&](const StepInfo& step) { return wanted.holds(step.step); };
  if (!wanted.is_any() || std::ranges::any_of(timeline.steps, is_wanted)) return;
  std::string there = "the capture has none";
  if (!timeline.steps.empty()) {
    const auto [first, last] = std::ranges::minmax(timeline.steps, {}, &StepInfo::step);
    there = "allowed: " + counted(std::ssize(timeline.steps), "step") + ", " + std::to_string(first.step) + " to " +
            std::to_string(last.step);
  }
  const std::string range =
      std::to_string(wanted.first) + (wanted.first < wanted.last ? ".." + std::to_string(wanted.last) : "");
  throw_invalid("--steps: no step " + range + "; " + there);
}

/// Tables and timelines of a capture, beside it; the tables also here. A kept step of an archive has no folder for files.
void report(const std::filesystem::path& directory, const StepRange& steps) {
  if (std::filesystem::is_regular_file(directory)) {
    if (!directory.string().ends_with(kSegmentEnding))
      throw_invalid(directory.string() + " is no capture; allowed: the folder of one, or a kept step (" + kSegmentEnding + ")");
    const ReportInput input(read_segment(directory));
    check_steps(input.timeline, steps);
    const std::vector<Finding> findings = find_and_advise(input);
    return print(make_report_text(findings, make_report_tables(input, findings)));
  }
  const ReportInput input(with_routing(read_one_run(directory), directory));
  check_steps(input.timeline, steps);
  print(write_report(directory, input, find_and_advise, steps));
}

/// Sends them all, and says what the collector rejects. Returns the number of messages.
int64_t send_spans(const ReportInput& input, const std::string& url) {
  const SpanExporter::Send post = http_sender(url);
  int64_t num_messages = 0, num_spans = 0, num_rejected = 0;
  std::string complaint;  // the first one
  export_otlp(input, [&](const std::string& json, int64_t num_in_message) {
    const SendAnswer answer = post(json);
    if (answer.result != SendResult::kTaken) throw Error(ErrorCode::kUnavailable, "spans are not taken: " + answer.complaint);
    ++num_messages;
    num_spans += num_in_message;
    num_rejected += std::min(answer.num_rejected, num_in_message);
    if (complaint.empty()) complaint = answer.complaint;
  });
  const std::string said = std::to_string(num_rejected) + " of " + counted(num_spans, "span") + " rejected: " + complaint;
  if (num_rejected == num_spans) throw Error(ErrorCode::kUnavailable, said);
  if (num_rejected > 0 || !complaint.empty()) std::fprintf(stderr, "ferry: warning: %s\n", one_line(said).c_str());
  return num_messages;
}

int64_t write_spans(const ReportInput& input, const std::string& path) {
  int64_t num_messages = 0;
  write_file(path, [&](std::ostream& out) {
    export_otlp(input, [&](const std::string& json, int64_t) {
      out << json << "\n";
      ++num_messages;
    });
  });
  return num_messages;
}

/// Steps and requests of a capture as spans, to a collector or into a file: what has a scheme is no file's name.
void export_spans(const std::filesystem::path& directory, const std::string& target) {
  const std::string url = target.find("://") != std::string::npos ? traces_url("--otlp", target) : "";
  const ReportInput input(read_one_run(directory));
  const int64_t num_messages = url.empty() ? write_spans(input, target) : send_spans(input, url);
  print("ferry: spans in " + target + ", " + counted(num_messages, "message") + "\n");
}

void export_files(const TraceOptions& options) {
  const std::filesystem::path& directory = options.captures.front();
  if (!options.out.empty()) return export_spans(directory, options.out.string());
  write_derived_files(directory, with_routing(read_capture(directory), directory), find_and_advise);
}

void compare(const std::filesystem::path& before, const std::filesystem::path& after) {
  const ReportInput a(read_one_run(before)), b(read_one_run(after));
  for (const std::string& warning : selection_warnings(a.capture.info, b.capture.info))
    std::fprintf(stderr, "ferry: warning: %s\n", warning.c_str());
  print("Before: " + before.string() + "\nAfter: " + after.string() + "\n\n");
  for (const Table& table : compare_captures(a, b)) print(to_text(table, /*max_rows=*/table.rows.size()) + "\n");
}

/// The exit code.
int verify_gains(const TraceOptions& options) {
  const ReportInput before(with_routing(read_one_run(options.captures[0]), options.captures[0])),
      after(read_one_run(options.captures[1]));
  std::vector<Action> actions;
  for (const Finding& finding : find_and_advise(before))
    actions.insert(actions.end(), finding.actions.begin(), finding.actions.end());
  const Verification verification = verify(before, after, actions);
  if (options.json) {
    print(verification_json(verification).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    return verification.exit_code();
  }
  print("before: " + options.captures[0].string() + "\nafter: " + options.captures[1].string() + "\n");
  for (const std::string& line : verification_lines(verification)) print(printable(line) + "\n");
  return verification.exit_code();
}

void merge(const TraceOptions& options) {
  std::vector<Capture> captures;
  for (const std::filesystem::path& directory : options.captures) captures.push_back(read_capture(directory));
  prepare_capture_folder(options.out);
  write_capture_files(options.out, merge_captures(std::move(captures)));
  print("ferry: merged timelines in " + options.out.string() + "; tables are those of each run\n");
}

void routing(const TraceOptions& options) {
  const RoutingTrace trace = read_routing_trace(options.captures.front());
  if (!options.out.empty()) {
    const std::string text = routing_as(trace, options.out.string());
    write_file(options.out, [&](std::ostream& out) { out << text; });
  }
  print(routing_text(trace));
}

}  // namespace

int run_trace(const TraceOptions& options) {
  switch (options.action) {
    case TraceOptions::Action::kReport: report(options.captures.front(), {options.first_step, options.last_step}); break;
    case TraceOptions::Action::kExport: export_files(options); break;
    case TraceOptions::Action::kDiff: compare(options.captures[0], options.captures[1]); break;
    case TraceOptions::Action::kVerify: return verify_gains(options);
    case TraceOptions::Action::kMerge: merge(options); break;
    case TraceOptions::Action::kRouting: routing(options); break;
    case TraceOptions::Action::kArchive: show_archive(options); break;
  }
  return 0;
}

}  // namespace ferry
