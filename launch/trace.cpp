#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "launch/commands.h"
#include "launch/trace_archive.h"
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
#include "runtime/server/otlp/span_exporter.h"

// `ferry trace`: what can be made of captures afterwards.

namespace ferry {
namespace {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

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

/// Tables and timelines of a capture, beside it; the tables also here. A kept step of an archive has no folder for files.
void report(const std::filesystem::path& directory, const StepRange& steps) {
  if (std::filesystem::is_regular_file(directory)) {
    const ReportInput input(read_segment(directory));
    const std::vector<Finding> findings = find_and_advise(input);
    return print(make_report_text(findings, make_report_tables(input, findings)));
  }
  const ReportInput input(with_routing(read_one_run(directory), directory));
  print(write_report(directory, input, find_and_advise, steps));
}

/// Steps and requests of a capture as spans, to a collector or into a file: what has a scheme is no file's name.
void export_spans(const std::filesystem::path& directory, const std::string& target) {
  const std::string url = target.find("://") != std::string::npos ? traces_url("--otlp", target) : "";
  const ReportInput input(read_one_run(directory));
  int64_t num_messages = 0;
  if (!url.empty()) {
    const SpanExporter::Send post = http_sender(url);
    export_otlp(input, [&](const std::string& json) {
      std::string complaint;
      if (post(json, complaint) != SendResult::kTaken)
        throw Error(ErrorCode::kUnavailable, "spans are not taken: " + complaint);
      ++num_messages;
    });
  } else {
    write_file(target, [&](std::ostream& out) {
      export_otlp(input, [&](const std::string& json) {
        out << json << "\n";
        ++num_messages;
      });
    });
  }
  print("ferry: spans in " + target + ", " + std::to_string(num_messages) + " messages\n");
}

void export_files(const TraceOptions& options) {
  const std::filesystem::path& directory = options.captures.front();
  if (!options.out.empty()) return export_spans(directory, options.out.string());
  write_derived_files(directory, with_routing(read_capture(directory), directory), find_and_advise);
}

void compare(const std::filesystem::path& before, const std::filesystem::path& after) {
  const ReportInput a(read_one_run(before)), b(read_one_run(after));
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
  for (const std::string& line : verification_lines(verification)) print(line + "\n");
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
