#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/compare/bench_result.h"
#include "launch/compare/rank_test.h"

namespace ferry {

/// Two results of `ferry bench --json` held against each other, the second over the first.
struct BenchComparison {
  struct Row {
    std::string name;
    double before = 0, after = 0;  // medians, tokens/s
    RankTest test;
    bool fails = false;  // it is slower, certainly so, and by more than is allowed
  };
  std::vector<Row> rows;              // that both have, in the order of the first
  std::vector<std::string> warnings;  // a line each: what makes figures less comparable, and rows that one lacks

  bool fails() const;
};

/// `fail_below`: the least ratio of medians that is allowed; nothing: any. Throws Error{kInvalidArgument} if they have no row
/// in common.
BenchComparison compare_results(const BenchResult& before, const BenchResult& after, std::optional<double> fail_below);

/// A table, a line each.
std::vector<std::string> comparison_lines(const BenchComparison& comparison);
nlohmann::ordered_json comparison_json(const BenchComparison& comparison);

}  // namespace ferry
