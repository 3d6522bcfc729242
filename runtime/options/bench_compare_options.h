#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace CLI {
class App;
}

namespace ferry {

struct BenchCompareOptions {
  std::vector<std::filesystem::path> files;  // results of `ferry bench --json`: before and after
  std::optional<double> fail_below;          // least ratio of medians that is allowed; absent: any
  bool json = false;
};

/// `ferry bench compare`, in the place of what `ferry bench` takes otherwise.
void add_bench_compare_options(CLI::App& app, BenchCompareOptions& options);

}  // namespace ferry
