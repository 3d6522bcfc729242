#include "moe/placement/load_file.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "moe/placement/json_fields.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {
namespace {

using nlohmann::json;
using placement::at, placement::list_of, placement::member, placement::refuse, placement::require_members,
    placement::whole_number;

constexpr const char* kFormat = "ferry-expert-load";
constexpr int64_t kLoadFileVersion = 1;
constexpr double kStepsMax = 1e15;  // whole numbers up to here are exact
constexpr JsonLimits kLimits{
    .depth = 4, .bytes = kLoadFileBytesMax, .values = int64_t{1} << 25, .members = 16, .duplicates = DuplicateKeys::kRefuse};

std::vector<double> read_counts(const json& value, const std::string& where, const ExpertLoads& shape) {
  std::vector<double> counts;
  list_of(value, where, shape.num_layers, shape.num_layers);
  for (const json& layer : value) {
    const int64_t l = static_cast<int64_t>(counts.size()) / shape.num_experts;
    for (const json& count : list_of(layer, at(where, l), shape.num_experts, shape.num_experts)) {
      if (!count.is_number() || !(count.get<double>() >= 0 && count.get<double>() <= kStepsMax)) {
        refuse(at(at(where, l), static_cast<int64_t>(counts.size()) % shape.num_experts), count, "0 to 1e15");
      }
      counts.push_back(count.get<double>());
    }
  }
  return counts;
}

void check_counts(const ExpertLoads& loads, const std::string& name) {
  constexpr double kRounding = 1 + 1e-9;  // of sums in which old windows count less
  for (std::size_t i = 0; i < loads.rows.size(); ++i) {
    if (loads.touched[i] <= loads.num_steps * kRounding && loads.touched[i] <= loads.rows[i] * kRounding) continue;
    const auto index = static_cast<int64_t>(i);
    throw_invalid(name + ": touched" + at(at("", index / loads.num_experts), index % loads.num_experts) + " is " +
                  json(loads.touched[i]).dump() + "; allowed: at most the expert's rows (" + json(loads.rows[i]).dump() +
                  ") and num_steps (" + json(loads.num_steps).dump() + ")");
  }
}

/// [num_layers][num_experts]
template <class T>
json nested(std::span<const T> values, int64_t num_experts) {
  json layers = json::array();
  for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(num_experts)) {
    layers.push_back(values.subspan(i, static_cast<std::size_t>(num_experts)));
  }
  return layers;
}

}  // namespace

std::string write_expert_loads(const ExpertLoads& loads) {
  nlohmann::ordered_json object;
  object["format"] = kFormat;
  object["version"] = kLoadFileVersion;
  object["num_layers"] = loads.num_layers;
  object["num_experts"] = loads.num_experts;
  object["num_steps"] = loads.num_steps;
  object["rows"] = nested(std::span(loads.rows), loads.num_experts);
  object["touched"] = nested(std::span(loads.touched), loads.num_experts);
  return object.dump() + "\n";
}

ExpertLoads read_expert_loads(std::string_view text, const std::string& name) {
  const json object = parse_json(text, name, kLimits);
  require_members(object, {"format", "version", "num_layers", "num_experts", "num_steps", "rows", "touched"}, name);
  if (object["format"] != kFormat) refuse(name + ": format", object["format"], kFormat);
  whole_number(object["version"], name + ": version", kLoadFileVersion, kLoadFileVersion);
  ExpertLoads loads{.num_layers = whole_number(object["num_layers"], name + ": num_layers", 1, kLoadLayersMax),
                    .num_experts = whole_number(object["num_experts"], name + ": num_experts", 1, kLoadExpertsMax)};
  const json& num_steps = object["num_steps"];
  if (!num_steps.is_number() || !(num_steps.get<double>() >= 0 && num_steps.get<double>() <= kStepsMax)) {
    refuse(name + ": num_steps", num_steps, "0 to 1e15");
  }
  loads.num_steps = num_steps.get<double>();
  loads.rows = read_counts(object["rows"], name + ": rows", loads);
  loads.touched = read_counts(object["touched"], name + ": touched", loads);
  check_counts(loads, name);
  return loads;
}

ExpertLoads read_expert_load_file(const std::filesystem::path& path, int64_t num_layers, int64_t num_experts) {
  ExpertLoads loads = read_expert_loads(read_text_file(path, kLoadFileBytesMax), path.string());
  if (loads.num_layers != num_layers || loads.num_experts != num_experts) {
    throw_invalid(path.string() + ": loads of " + std::to_string(loads.num_layers) + " layers with " +
                  std::to_string(loads.num_experts) + " experts; allowed: the model's " + std::to_string(num_layers) +
                  " with " + std::to_string(num_experts));
  }
  return loads;
}

std::string write_load_record(const LoadRecord& record) {
  json windows = json::array();
  const auto size = static_cast<std::size_t>(record.num_layers * record.num_experts);
  for (std::size_t i = 0; i < record.rows.size(); i += size) {
    windows.push_back(nested(std::span(record.rows).subspan(i, size), record.num_experts));
  }
  return json{{"expert_load_window", std::move(windows)}}.dump() + "\n";
}

LoadRecord read_load_record(std::string_view text, const std::string& name) {
  const json object = parse_json(text, name, kLimits);
  require_members(object, {"expert_load_window"}, name);
  const std::string where = name + ": expert_load_window";
  LoadRecord record;
  for (const json& window : list_of(object["expert_load_window"], where, 1, kLoadWindowsMax)) {
    const std::string here = at(where, record.num_windows++);
    const bool is_first = record.num_layers == 0;
    list_of(window, here, is_first ? 1 : record.num_layers, is_first ? kLoadLayersMax : record.num_layers);
    record.num_layers = static_cast<int64_t>(window.size());
    for (int64_t l = 0; l < record.num_layers; ++l) {
      const json& layer = window[static_cast<std::size_t>(l)];
      const bool is_open = record.num_experts == 0;
      list_of(layer, at(here, l), is_open ? 1 : record.num_experts, is_open ? kLoadExpertsMax : record.num_experts);
      record.num_experts = static_cast<int64_t>(layer.size());
      for (const json& rows : layer) {
        record.rows.push_back(static_cast<int32_t>(whole_number(rows, at(here, l), 0, std::numeric_limits<int32_t>::max())));
      }
    }
  }
  return record;
}

std::string write_deepseek_weight(const LoadRecord& record) {
  const auto size = static_cast<std::size_t>(record.num_layers * record.num_experts);
  std::vector<int64_t> sums(size, 0);
  for (std::size_t i = 0; i < record.rows.size(); ++i) sums[i % size] += record.rows[i];
  return json{{"weight", nested(std::span<const int64_t>(sums), record.num_experts)}}.dump() + "\n";
}

}  // namespace ferry
