#include "profiler/export/capture_files.h"

#include <utility>

#include "profiler/capture_merge.h"
#include "profiler/export/ascend_profile.h"
#include "profiler/export/chrome_trace.h"
#include "profiler/export/kineto_trace.h"
#include "profiler/export/operator_profile.h"
#include "profiler/export/perfetto_trace.h"
#include "profiler/export/stack_profile.h"
#include "profiler/report/report.h"
#include "profiler/report/stacks/stack_times.h"
#include "profiler/write_file.h"

namespace ferry {
namespace {

std::size_t count_spans(const Capture& capture) {
  std::size_t count = 0;
  for (const RankCapture& rank : capture.ranks) {
    for (const ThreadCapture& thread : rank.threads) count += thread.records.size();
  }
  return count;
}

void write_compact(const std::filesystem::path& directory, const ReportInput& input) {
  if (!is_merged(input.capture))
    write_file_anew(directory / "profile.pb.gz", [&](std::ostream& out) { out << encode_operator_profile(input); });
  write_file_anew(directory / "trace.pftrace", [&](std::ostream& out) { write_perfetto_trace(input, out); });
  if (!has_stacks(input)) return;
  write_file_anew(directory / "stacks.pb.gz", [&](std::ostream& out) { out << encode_stack_profile(input); });
  write_file_anew(directory / "stacks.speedscope.json", [&](std::ostream& out) { write_speedscope(input, out); });
}

void write_text_timelines(const std::filesystem::path& directory, const ReportInput& input) {
  write_file_anew(directory / "trace.json", [&](std::ostream& out) { write_chrome_trace(input, out); });
  if (is_merged(input.capture)) return;  // what follows accounts for steps
  write_ascend_profiles(input, directory);
  write_kineto_traces(input, directory / "kineto");
}

/// Last: its page links to what lies beside it.
void write_tables(const std::filesystem::path& directory, const ReportInput& input, FindFindings find) {
  if (!is_merged(input.capture)) write_report(directory, input, find);
}

}  // namespace

void write_capture_files(const std::filesystem::path& directory, Capture capture, FindFindings find) {
  write_capture(directory, capture);
  const bool has_text = count_spans(capture) <= kMaxTextSpans;
  const ReportInput input(std::move(capture));
  write_compact(directory, input);
  if (has_text) write_text_timelines(directory, input);
  write_tables(directory, input, find);
}

void write_derived_files(const std::filesystem::path& directory, Capture capture, FindFindings find) {
  refuse_links_in(directory);
  const ReportInput input(std::move(capture));
  write_compact(directory, input);
  write_text_timelines(directory, input);
  write_tables(directory, input, find);
}

}  // namespace ferry
