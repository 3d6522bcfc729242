#include <cstdio>
#include <utility>

#include "launch/commands.h"
#include "profiler/capture_merge.h"
#include "profiler/export/capture_files.h"
#include "profiler/report/report.h"
#include "profiler/report/views.h"
#include "runtime/base/error.h"

// `ferry trace`: what can be made of captures afterwards.

namespace ferry {
namespace {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

/// Tables and timelines of a capture, beside it; the tables also here.
void report(const std::filesystem::path& directory) {
  const ReportInput input(read_capture(directory));
  write_report(directory, input);
  print(make_report_text(find_problems(input), make_views(input)));
}

void compare(const std::filesystem::path& before, const std::filesystem::path& after) {
  const ReportInput a(read_capture(before)), b(read_capture(after));
  print("Before: " + before.string() + "\nAfter: " + after.string() + "\n\n");
  for (const Table& table : compare_captures(a, b)) print(to_text(table) + "\n");
}

void merge(const TraceOptions& options) {
  std::vector<Capture> captures;
  for (const std::filesystem::path& directory : options.captures) captures.push_back(read_capture(directory));
  prepare_capture_folder(options.out);
  write_capture_files(options.out, merge_captures(std::move(captures)));
  print("merged capture in " + options.out.string() + "\n");
}

}  // namespace

int run_trace(const TraceOptions& options) {
  switch (options.action) {
    case TraceOptions::Action::kReport: report(options.captures.front()); break;
    case TraceOptions::Action::kExport:
      write_derived_files(options.captures.front(), read_capture(options.captures.front()));
      break;
    case TraceOptions::Action::kDiff: compare(options.captures[0], options.captures[1]); break;
    case TraceOptions::Action::kMerge: merge(options); break;
  }
  return 0;
}

}  // namespace ferry
