#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ferry {

struct TraceOptions {
  enum class Action { kReport, kExport, kDiff, kVerify, kMerge, kRouting, kArchive } action = Action::kReport;
  std::vector<std::filesystem::path>
      captures;  // folders: one, for kDiff and kVerify two, for kMerge more; of kRouting one, or a file
  uint32_t first_step = 1, last_step = 0;  // of kReport: steps that the page is to hold, both ends included; none
  std::filesystem::path out;  // of kMerge; of kRouting a file, of kArchive a folder, of kExport where spans go; or empty
  bool json = false;          // of kVerify and kArchive
  struct Archive {
    std::string at, last;  // as given (profiler/archive/moment.h); empty: not
    std::string phase;     // "prefill", "decode", "mixed"; empty: all
    int64_t num_slowest = 0;
  } archive;
};

/// One subcommand for each action.
void add_trace_options(CLI::App& app, TraceOptions& options);

}  // namespace ferry
