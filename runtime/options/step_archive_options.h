#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace ferry {

struct EngineOptions;

/// Which steps are kept while requests are answered, and where.
struct StepArchiveOptions {
  std::optional<std::filesystem::path> trace_dir;  // the archive is a folder in it
  int64_t trace_sample = 0;                        // one step in so many is kept; 0: none
  std::optional<int64_t> trace_sample_bytes;       // of the archive on disk, if it was given
  static constexpr int64_t kDefaultBytes = int64_t{256} << 20;
  int64_t max_bytes() const { return trace_sample_bytes.value_or(kDefaultBytes); }
};

/// Adds --trace-dir, of which `folder_help` says what else it is for, --trace-sample and --trace-sample-bytes.
void add_step_archive_options(CLI::App& app, StepArchiveOptions& options, const std::string& folder_help);
/// Adds --trace-sample as an option that is refused in one line that says why.
void add_refused_trace_sample(CLI::App& app, const std::string& why);

/// What no single option can tell; `engine` says what is recorded. Empty if all is well.
std::string check_together(const StepArchiveOptions& options, const EngineOptions& engine);

}  // namespace ferry
