#include "profiler/export/capture_files.h"

#include <cerrno>
#include <fstream>
#include <functional>
#include <system_error>
#include <utility>

#include "profiler/export/ascend_profile.h"
#include "profiler/export/chrome_trace.h"
#include "profiler/export/perfetto_trace.h"
#include "profiler/report/report.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

std::string system_reason() { return std::error_code(errno, std::generic_category()).message(); }

void write_with(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  if (file) write(file);
  file.close();
  if (!file) throw Error(ErrorCode::kUnavailable, "cannot write " + path.string() + ": " + system_reason());
}

}  // namespace

void write_capture_files(const std::filesystem::path& directory, Capture capture) {
  write_capture(directory, capture);
  write_derived_files(directory, std::move(capture));
}

void write_derived_files(const std::filesystem::path& directory, Capture capture) {
  const ReportInput input(std::move(capture));
  write_report(directory, input);
  write_with(directory / "trace.pftrace", [&](std::ostream& out) { write_perfetto_trace(input, out); });
  write_with(directory / "trace.json", [&](std::ostream& out) { write_chrome_trace(input, out); });
  write_ascend_profiles(input, directory);
}

}  // namespace ferry
