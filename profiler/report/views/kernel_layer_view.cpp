#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/kernel_groups.h"
#include "profiler/report/views/layer_types.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// A kernel of a layer: which half it is in, and its zone. All calls in a half are one, of whichever micro-batch or peer.
using KernelKey = std::pair<bool, Zone>;  // whether it is in the second half

/// The layer's second half begins with the norm before its experts or its dense network, or with these.
bool begins_second_half(const Slice& slice) {
  if (slice.zone == Zone::kPostAttentionNorm) return true;
  const std::string_view type = layer_type_of(slice.zone);
  return type == "moe" || type == "dense";
}

struct KernelTime {
  int64_t total = 0;            // ns
  double place = 0, count = 0;  // sum of the places of its last call in a layer, of which there are `count`
};

/// The layers of one type, over the steps of a group.
struct LayerKernels {
  std::map<KernelKey, KernelTime> kernels;
  int64_t num_layers = 0;  // as often as one ran in a step
  int64_t total = 0;       // ns

  double us_of(int64_t ns) const { return to_us(ns) / static_cast<double>(num_layers); }
  std::vector<KernelKey> in_order() const {
    std::vector<KernelKey> keys;
    for (const auto& [key, time] : kernels) keys.push_back(key);
    const auto place = [&](const KernelKey& key) {
      const KernelTime& time = kernels.at(key);
      return std::pair(key.first, time.place / time.count);
    };
    std::ranges::stable_sort(keys, {}, place);
    return keys;
  }
};

using GroupKernels = std::map<std::string, LayerKernels>;  // by the layer's type

/// Takes the coordinator's slices of a step and hands them to the types of their layers.
class LayerWalk {
 public:
  LayerWalk(const std::vector<std::string>& layer_types, GroupKernels& group) : layer_types_(layer_types), group_(group) {}

  void add(const Slice& slice) {
    const auto index = static_cast<std::size_t>(slice.layer);
    if (slice.zone == Zone::kStep || slice.layer == kNoLayer || index >= layer_types_.size()) return;
    LayerKernels& layers = group_[layer_types_[index]];
    if (seen_.insert(slice.layer).second) ++layers.num_layers;
    Part& part = parts_[{slice.layer, slice.micro_batch}];
    part.is_second_half |= begins_second_half(slice);
    const KernelKey key{part.is_second_half, slice.zone};
    KernelTime& time = layers.kernels[key];
    time.total += slice.self_ns;
    const auto [last, is_first] = part.places.try_emplace(key, 0);
    time.place += static_cast<double>(part.num_slices - last->second);
    time.count += is_first ? 1 : 0;
    last->second = part.num_slices++;
    layers.total += slice.self_ns;
  }

 private:
  struct Part {
    bool is_second_half = false;
    int64_t num_slices = 0;
    std::map<KernelKey, int64_t> places;  // of the last call so far
  };

  const std::vector<std::string>& layer_types_;
  GroupKernels& group_;
  std::set<int16_t> seen_;
  std::map<std::pair<int16_t, uint8_t>, Part> parts_;  // by layer and micro-batch
};

std::vector<GroupKernels> sum_kernels(const ReportInput& input, const std::vector<KernelGroup>& groups) {
  std::vector<GroupKernels> sums(groups.size());
  std::map<std::size_t, LayerWalk> walks;  // by step
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const int32_t step : groups[g].steps)
      walks.try_emplace(static_cast<std::size_t>(step), input.capture.info.model.layer_types, sums[g]);
  }
  for_each_step_slice(input.timeline, [&](std::size_t step, const Slice& slice) {
    if (const auto walk = walks.find(step); walk != walks.end()) walk->second.add(slice);
  });
  return sums;
}

/// Both orders as one: what only one has stands before the next that both have.
std::vector<KernelKey> merge_orders(const std::vector<KernelKey>& left, const std::vector<KernelKey>& right) {
  std::vector<KernelKey> merged;
  std::set<KernelKey> done;
  const auto has = [](const std::vector<KernelKey>& keys, const KernelKey& key) {
    return std::ranges::find(keys, key) != keys.end();
  };
  const auto put = [&](const KernelKey& key) {
    if (done.insert(key).second) merged.push_back(key);
  };
  auto next = right.begin();
  for (const KernelKey& key : left) {
    if (!has(right, key)) {
      put(key);
      continue;
    }
    const auto at = std::find(next, right.end(), key);  // not ahead: the two have them in other orders
    for (; at != right.end() && next != at; ++next) {
      if (!has(left, *next)) put(*next);
    }
    put(key);
  }
  for (const KernelKey& key : right) put(key);
  return merged;
}

/// Kernel, us and share of one side; empty cells if layers of that type have none such.
void add_side(const LayerKernels& layers, const KernelKey& key, std::vector<Table::Cell>& cells) {
  const auto found = layers.kernels.find(key);
  if (found == layers.kernels.end()) {
    cells.insert(cells.end(), 3, Table::Cell{});
    return;
  }
  cells.emplace_back(zone_info(key.second).name);
  cells.emplace_back(layers.us_of(found->second.total));
  cells.push_back(ratio_cell(static_cast<double>(found->second.total), static_cast<double>(layers.total)));
}

double us_of(const LayerKernels& layers, const KernelKey& key) {
  const auto found = layers.kernels.find(key);
  return found != layers.kernels.end() ? layers.us_of(found->second.total) : 0;
}

void add_pair(const std::string& group, const std::string& left_type, const LayerKernels& left, const std::string& right_type,
              const LayerKernels& right, Table& table) {
  int64_t order = 0;
  for (const KernelKey& key : merge_orders(left.in_order(), right.in_order())) {
    const Zone zone = key.second;
    std::vector<Table::Cell> cells{group, left_type, right_type, ++order, part_name(zone_info(zone).part)};
    add_side(left, key, cells);
    add_side(right, key, cells);
    cells.push_back(cell_if(!right_type.empty(), us_of(right, key) - us_of(left, key)));
    table.rows.push_back(std::move(cells));
  }
}

}  // namespace

Table make_kernel_layer_view(const ReportInput& input) {
  Table table{.id = "kernel_layer",
              .title = "Layers side by side",
              .note =
                  "Own time of each kernel in a layer on the coordinator, all its calls there together, as a mean over the "
                  "layers of a type and the steps of a phase: left those of one type, right those of another. What both have, "
                  "as the second halves with the experts, shares a row; their mixers stand apart. difference_us: right - left; "
                  "it adds up to what a layer of the right takes longer. share: of a layer's time." +
                  device_note(input, "With a GPU: its time, and the host's while the GPU had nothing to do."),
              .columns = {{"phase"},
                          {"left_type"},
                          {"right_type"},
                          {"order"},
                          {"part"},
                          {"left_kernel"},
                          {"left_us", 3},
                          {"left_share", 4},
                          {"right_kernel"},
                          {"right_us", 3},
                          {"right_share", 4},
                          {"difference_us", 3}}};
  const std::vector<KernelGroup> groups = find_kernel_groups(input.timeline);
  const std::vector<GroupKernels> sums = sum_kernels(input, groups);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<std::string> types;
    for (const char* type : kLayerTypes) {
      if (sums[g].contains(type)) types.emplace_back(type);
    }
    if (types.empty()) continue;
    const LayerKernels& left = sums[g].at(types.front());
    if (types.size() == 1) add_pair(groups[g].name, types.front(), left, "", {}, table);
    for (std::size_t t = 1; t < types.size(); ++t)
      add_pair(groups[g].name, types.front(), left, types[t], sums[g].at(types[t]), table);
  }
  return table;
}

}  // namespace ferry
