#pragma once

#include <filesystem>
#include <vector>

namespace CLI {
class App;
}

namespace ferry {

struct TraceOptions {
  enum class Action { kReport, kExport, kDiff, kVerify, kMerge, kRouting } action = Action::kReport;
  std::vector<std::filesystem::path>
      captures;               // folders: one, for kDiff and kVerify two, for kMerge more; of kRouting one, or a file
  std::filesystem::path out;  // of kMerge; of kRouting a file, or empty
  bool json = false;          // of kVerify
};

/// One subcommand for each action.
void add_trace_options(CLI::App& app, TraceOptions& options);

}  // namespace ferry
