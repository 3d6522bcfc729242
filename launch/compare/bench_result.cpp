#include "launch/compare/bench_result.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr std::size_t kMostRows = 4096;     // of a phase
constexpr std::size_t kMostSamples = 1000;  // -r
constexpr std::size_t kMostNameBytes = 100;
constexpr JsonLimits kLimits{
    .depth = 8, .bytes = 1 << 26, .values = 1 << 23, .members = 64, .duplicates = DuplicateKeys::kRefuse};

[[noreturn]] void refuse_value(const std::string& where, const json& value, const std::string& allowed) {
  throw_invalid(where + " is " + shown(value) + "; allowed: " + allowed);
}

const json& require_member(const json& object, const char* key, const std::string& where) {
  if (!object.is_object()) refuse_value(where, object, "an object");
  const auto found = object.find(key);
  if (found == object.end()) throw_invalid(where + ": no " + key + "; allowed: a result of ferry bench --json");
  return *found;
}

const json* find_member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

double require_rate(const json& value, const std::string& where) {
  const double rate = value.is_number() ? value.get<double>() : 0;
  if (!std::isfinite(rate) || rate <= 0) refuse_value(where, value, "a number above 0");
  return rate;
}

/// Absent: true.
bool is_not_false(const json* value, const std::string& where) {
  if (value == nullptr) return true;
  if (!value->is_boolean()) refuse_value(where, *value, "true or false");
  return value->get<bool>();
}

const json& require_list(const json& value, const std::string& where, std::size_t most) {
  if (!value.is_array() || value.size() > most) refuse_value(where, value, "a list of up to " + std::to_string(most));
  return value;
}

std::vector<double> read_samples(const json& row, const std::string& where) {
  const json& rates = require_member(row, "tokens_per_s", where);
  if (rates.is_object() && !rates.contains("samples"))
    throw_invalid(where + ".tokens_per_s: no samples; allowed: a result of a Ferry that writes each repetition down");
  const std::string place = where + ".tokens_per_s.samples";
  const json& list = require_list(require_member(rates, "samples", where + ".tokens_per_s"), place, kMostSamples);
  if (list.empty()) refuse_value(place, list, "1 to " + std::to_string(kMostSamples) + " numbers");
  std::vector<double> samples;
  for (std::size_t i = 0; i < list.size(); ++i) samples.push_back(require_rate(list[i], place + "[" + std::to_string(i) + "]"));
  return samples;
}

ResultRow read_row(const json& row, const std::string& where) {
  const json& name = require_member(row, "name", where);
  if (!name.is_string() || name.get_ref<const std::string&>().empty() ||
      name.get_ref<const std::string&>().size() > kMostNameBytes)
    refuse_value(where + ".name", name, "a text of 1 to " + std::to_string(kMostNameBytes) + " bytes");
  ResultRow result{.name = name.get<std::string>(),
                   .tokens_per_s = read_samples(row, where),
                   .read_bytes_per_s = std::nullopt,
                   .is_sound = is_not_false(find_member(row, "is_possible"), where + ".is_possible")};
  if (const json* roof = find_member(row, "read_bytes_per_s"))
    result.read_bytes_per_s = require_rate(*roof, where + ".read_bytes_per_s");
  if (const json* warm_up = find_member(row, "warm_up")) {
    const json& is_steady = require_member(*warm_up, "is_steady", where + ".warm_up");
    result.is_sound = is_not_false(&is_steady, where + ".warm_up.is_steady") && result.is_sound;
  }
  return result;
}

void add_rows(BenchResult& result, const json& list, const std::string& where) {
  require_list(list, where, kMostRows);
  for (std::size_t i = 0; i < list.size(); ++i) {
    ResultRow row = read_row(list[i], where + "[" + std::to_string(i) + "]");
    const bool is_known =
        std::any_of(result.rows.begin(), result.rows.end(), [&](const ResultRow& other) { return other.name == row.name; });
    if (is_known) throw_invalid(where + ": two rows named '" + row.name + "'; allowed: one of each name");
    result.rows.push_back(std::move(row));
  }
}

}  // namespace

BenchResult read_bench_result(std::string_view text, const std::string& name) {
  const json object = parse_json(text, name, kLimits);
  BenchResult result;
  for (const char* phase : {"prefill", "decode"}) add_rows(result, require_member(object, phase, name), name + ": " + phase);
  if (const json* drafts = find_member(object, "drafts")) add_rows(result, *drafts, name + ": drafts");
  for (const char* key : {"model", "dtype", "weights", "device", "threads", "expert_workers", "transport", "kernels", "matmul",
                          "kv_cache_dtype", "multiply_unit", "routing"}) {
    if (const json* value = find_member(object, key)) result.conditions[key] = shown(*value);
  }
  if (const json* conditions = find_member(object, "conditions")) {
    if (!conditions->is_object()) refuse_value(name + ": conditions", *conditions, "an object");
    for (const auto& item : conditions->items()) {
      if (item.key() == "version") {
        result.version = shown(item.value());
      } else {
        result.conditions[item.key()] = shown(item.value());
      }
    }
  }
  return result;
}

}  // namespace ferry
