#include "moe/placement/placement_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "moe/placement/json_fields.h"
#include "moe/placement/load_file.h"
#include "moe/placement/spread.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {
namespace {

using nlohmann::json;
using placement::at, placement::list_of, placement::refuse, placement::require_members, placement::whole_number;

constexpr const char* kPlacementFormat = "ferry-placement";
constexpr int64_t kPlacementVersion = 1;
constexpr JsonLimits kPlacementLimits{
    .depth = 5, .bytes = kLoadFileBytesMax, .values = int64_t{1} << 25, .members = 16, .duplicates = DuplicateKeys::kRefuse};

std::vector<LogicalExpertId> read_worker(const json& list, const std::string& where, int64_t num_experts) {
  std::vector<LogicalExpertId> experts;
  std::vector<bool> seen(static_cast<std::size_t>(num_experts), false);
  for (const json& value : list_of(list, where, 0, num_experts)) {
    const int64_t expert = whole_number(value, at(where, std::ssize(experts)), 0, num_experts - 1);
    if (seen[static_cast<std::size_t>(expert)])
      throw_invalid(where + " has expert " + std::to_string(expert) + " twice; allowed: one copy on a worker");
    seen[static_cast<std::size_t>(expert)] = true;
    experts.push_back({static_cast<int32_t>(expert)});
  }
  return experts;
}

void require_equal(const std::string& name, const std::string& what, int64_t got, int64_t wanted) {
  if (got != wanted) throw_invalid(name + " has " + std::to_string(got) + " " + what + "; allowed: " + std::to_string(wanted));
}

}  // namespace

std::string write_placement(const PlacementFile& placement) {
  json list = json::array();
  for (const LayerPlacement& layer : placement.layers) {
    json& workers = list.emplace_back(json::array());
    for (const std::vector<LogicalExpertId>& worker : layer) {
      json& experts = workers.emplace_back(json::array());
      for (const LogicalExpertId expert : worker) experts.push_back(expert.value);
    }
  }
  const json object{{"format", kPlacementFormat},
                    {"version", kPlacementVersion},
                    {"num_experts", placement.num_experts},
                    {"num_workers", placement.num_workers},
                    {"layers", list}};
  return object.dump() + "\n";
}

PlacementFile read_placement(std::string_view text, const std::string& name) {
  const json object = parse_json(text, name, kPlacementLimits);
  require_members(object, {"format", "version", "num_experts", "num_workers", "layers"}, name);
  if (object["format"] != kPlacementFormat) refuse(name + ": format", object["format"], kPlacementFormat);
  whole_number(object["version"], name + ": version", kPlacementVersion, kPlacementVersion);
  PlacementFile placement{.num_experts = whole_number(object["num_experts"], name + ": num_experts", 1, kLoadExpertsMax),
                          .num_workers = whole_number(object["num_workers"], name + ": num_workers", 1, kMaxWorkers),
                          .layers = {}};
  for (const json& list : list_of(object["layers"], name + ": layers", 1, kLoadLayersMax)) {
    const std::string where = at(name + ": layers", std::ssize(placement.layers));
    LayerPlacement& layer = placement.layers.emplace_back();
    for (const json& worker : list_of(list, where, placement.num_workers, placement.num_workers))
      layer.push_back(read_worker(worker, at(where, std::ssize(layer)), placement.num_experts));
    const std::vector<int32_t> copies = copies_in(layer, placement.num_experts);
    const auto missing = std::ranges::find(copies, 0);
    if (missing != copies.end())
      throw_invalid(where + " has expert " + std::to_string(missing - copies.begin()) + " on no worker; allowed: one or more");
  }
  return placement;
}

std::vector<LayerPlacement> read_placement_file(const std::filesystem::path& path, int64_t num_layers, int64_t num_experts,
                                                int64_t num_workers) {
  const std::string name = path.string();
  PlacementFile placement = read_placement(read_text_file(path, kLoadFileBytesMax), name);
  require_equal(name, "layers with experts", std::ssize(placement.layers), num_layers);
  require_equal(name, "experts", placement.num_experts, num_experts);
  require_equal(name, "workers", placement.num_workers, num_workers);
  return std::move(placement.layers);
}

}  // namespace ferry
