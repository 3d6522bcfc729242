#include "launch/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "launch/sample.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr double kMostRoofChange = 0.05;  // of the roofs beside a row, from which the machine was another one

template <class... Arguments>
std::string formatted(const char* format, Arguments... arguments) {
  char text[256];
  std::snprintf(text, sizeof text, format, arguments...);
  return text;
}

const ResultRow* find_row(const BenchResult& result, const std::string& name) {
  const auto found =
      std::find_if(result.rows.begin(), result.rows.end(), [&](const ResultRow& row) { return row.name == name; });
  return found == result.rows.end() ? nullptr : &*found;
}

void warn_of_conditions(const BenchResult& before, const BenchResult& after, std::vector<std::string>& warnings) {
  const auto value_of = [](const BenchResult& result, const std::string& key) {
    const auto found = result.conditions.find(key);
    return found == result.conditions.end() ? std::string("not said") : found->second;
  };
  std::map<std::string, std::string> all = before.conditions;
  all.insert(after.conditions.begin(), after.conditions.end());
  for (const auto& [key, value] : all) {
    const std::string first = value_of(before, key), second = value_of(after, key);
    if (first != second) warnings.push_back(key + " differs: " + first + ", then " + second);
  }
}

void warn_of_lacks(const BenchResult& has, const BenchResult& lacks, const char* where, std::vector<std::string>& warnings) {
  for (const ResultRow& row : has.rows)
    if (find_row(lacks, row.name) == nullptr) warnings.push_back("'" + row.name + "' is only in the " + where + " result");
}

void warn_of_row(const ResultRow& before, const ResultRow& after, std::vector<std::string>& warnings) {
  for (const auto& [row, which] : {std::pair{&before, "first"}, std::pair{&after, "second"}}) {
    if (!row->is_sound) warnings.push_back("'" + row->name + "' was not steady or above a roof in the " + which + " result");
  }
  if (!before.read_bytes_per_s || !after.read_bytes_per_s) return;
  const double change = *after.read_bytes_per_s / *before.read_bytes_per_s;
  if (std::abs(change - 1) <= kMostRoofChange) return;
  warnings.push_back("'" + before.name + "': the machine itself read " +
                     formatted("%.2f x as fast in the second result", change));
}

std::string verdict(const BenchComparison::Row& row) {
  if (!row.test.has_interval) return "too few samples to tell (4 and 4 are enough)";
  if (!row.test.is_different()) return "no difference seen";
  return std::string(row.test.low > 1 ? "faster" : "SLOWER") + (row.fails ? ", FAILS" : "");
}

}  // namespace

bool BenchComparison::fails() const {
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.fails; });
}

BenchComparison compare_results(const BenchResult& before, const BenchResult& after, std::optional<double> fail_below) {
  BenchComparison comparison;
  warn_of_conditions(before, after, comparison.warnings);
  warn_of_lacks(before, after, "first", comparison.warnings);
  warn_of_lacks(after, before, "second", comparison.warnings);
  for (const ResultRow& first : before.rows) {
    const ResultRow* const second = find_row(after, first.name);
    if (second == nullptr) continue;
    warn_of_row(first, *second, comparison.warnings);
    BenchComparison::Row row{.name = first.name,
                             .before = summarise(first.tokens_per_s).median,
                             .after = summarise(second->tokens_per_s).median,
                             .test = rank_test(first.tokens_per_s, second->tokens_per_s)};
    row.fails = fail_below && row.test.is_different() && row.test.high < 1 && row.test.ratio < *fail_below;
    comparison.rows.push_back(row);
  }
  if (comparison.rows.empty()) throw_invalid("bench compare: the two results have no row in common");
  return comparison;
}

std::vector<std::string> comparison_lines(const BenchComparison& comparison) {
  std::vector<std::string> lines;
  for (const std::string& warning : comparison.warnings) lines.push_back("warning: " + warning);
  lines.push_back(formatted("%-24s %10s %10s   %7s  %-17s %8s", "row", "first", "second", "ratio", "95 % interval", "p"));
  for (const BenchComparison::Row& row : comparison.rows) {
    const std::string interval =
        row.test.has_interval ? formatted("%.3f to %.3f", row.test.low, row.test.high) : std::string("-");
    lines.push_back(formatted("%-24s %10.1f %10.1f   %7.3f  %-17s %8.4f  ", row.name.c_str(), row.before, row.after,
                              row.test.ratio, interval.c_str(), row.test.p) +
                    verdict(row));
  }
  return lines;
}

ordered_json comparison_json(const BenchComparison& comparison) {
  ordered_json rows = ordered_json::array();
  for (const BenchComparison::Row& row : comparison.rows) {
    ordered_json interval = nullptr;
    if (row.test.has_interval) interval = {row.test.low, row.test.high};
    rows.push_back({{"name", row.name},
                    {"first", row.before},
                    {"second", row.after},
                    {"ratio", row.test.ratio},
                    {"interval", interval},
                    {"p", row.test.p},
                    {"is_different", row.test.is_different()},
                    {"fails", row.fails}});
  }
  return {{"rows", rows}, {"warnings", comparison.warnings}, {"fails", comparison.fails()}};
}

}  // namespace ferry
