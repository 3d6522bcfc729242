#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// A row of a result of `ferry bench --json`, as far as another result can be held against it.
struct ResultRow {
  std::string name;                        // "prefill 512 @ 8192"
  std::vector<double> tokens_per_s;        // of each repetition: finite, above 0
  std::optional<double> read_bytes_per_s;  // the roof that was measured beside it
  bool is_sound = true;                    // the figures were steady and no share of a roof was impossible
};

struct BenchResult {
  std::vector<ResultRow> rows;                    // names are different
  std::map<std::string, std::string> conditions;  // what must be equal for figures to mean the same, by name
  std::string version;                            // of Ferry; may be empty
};

/// Of the text that `ferry bench --json` prints; what it does not know it leaves alone. Throws Error{kInvalidArgument} that
/// names `name`, the place, the value and what is allowed.
BenchResult read_bench_result(std::string_view text, const std::string& name);

}  // namespace ferry
