#include <cstdio>
#include <nlohmann/json.hpp>

#include "launch/commands.h"
#include "launch/compare/comparison.h"
#include "runtime/base/text_file.h"

namespace ferry {

int run_bench_compare(const BenchCompareOptions& options) {
  constexpr int64_t kMostBytes = int64_t{1} << 26;
  const auto read = [&](const std::filesystem::path& path) {
    return read_bench_result(read_text_file(path, kMostBytes), path.string());
  };
  const BenchResult before = read(options.files.at(0)), after = read(options.files.at(1));
  const BenchComparison comparison = compare_results(before, after, options.fail_below);
  if (options.json) {
    const auto replace = nlohmann::ordered_json::error_handler_t::replace;
    std::printf("%s\n", comparison_json(comparison).dump(-1, ' ', false, replace).c_str());
  } else {
    for (const std::string& line : comparison_lines(comparison)) std::printf("%s\n", line.c_str());
  }
  return comparison.fails() ? 1 : 0;
}

}  // namespace ferry
