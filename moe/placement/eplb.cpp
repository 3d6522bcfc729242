#include "moe/placement/eplb.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "runtime/base/error.h"

namespace ferry {
namespace {

/// Where an item went.
struct PackedItem {
  int32_t bin = 0;
  int32_t position = 0;  // among the items of the bin
};

/// Items by descending load, each to the bin with the least load that has room: every bin gets equally many. As many bins as
/// items: each its own.
std::vector<PackedItem> pack_equally(std::span<const float> load, int64_t num_bins) {
  std::vector<PackedItem> packed(load.size());
  if (static_cast<int64_t>(load.size()) == num_bins) {
    for (std::size_t i = 0; i < load.size(); ++i) packed[i] = {static_cast<int32_t>(i), 0};
    return packed;
  }
  std::vector<int32_t> order(load.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return load[static_cast<std::size_t>(a)] > load[static_cast<std::size_t>(b)]; });
  const auto room = static_cast<int32_t>(static_cast<int64_t>(load.size()) / num_bins);
  std::vector<float> bin_load(static_cast<std::size_t>(num_bins), 0.0F);
  std::vector<int32_t> bin_items(static_cast<std::size_t>(num_bins), 0);
  for (const int32_t item : order) {
    std::size_t best = bin_load.size();
    for (std::size_t b = 0; b < bin_load.size(); ++b) {
      if (bin_items[b] < room && (best == bin_load.size() || bin_load[b] < bin_load[best])) best = b;
    }
    packed[static_cast<std::size_t>(item)] = {static_cast<int32_t>(best), bin_items[best]++};
    bin_load[best] += load[static_cast<std::size_t>(item)];
  }
  return packed;
}

/// The experts of each node: groups packed over nodes, in the order of their places there.
std::vector<std::vector<int32_t>> node_experts(std::span<const float> rows, int64_t num_groups, int64_t num_nodes) {
  const std::size_t group_size = rows.size() / static_cast<std::size_t>(num_groups);
  std::vector<float> group_rows(static_cast<std::size_t>(num_groups), 0.0F);
  for (std::size_t e = 0; e < rows.size(); ++e) group_rows[e / group_size] += rows[e];
  const std::vector<PackedItem> packed = pack_equally(group_rows, num_nodes);
  std::vector<std::vector<int32_t>> experts(static_cast<std::size_t>(num_nodes),
                                            std::vector<int32_t>(rows.size() / static_cast<std::size_t>(num_nodes)));
  for (std::size_t g = 0; g < packed.size(); ++g) {
    const auto first = experts[static_cast<std::size_t>(packed[g].bin)].begin() +
                       static_cast<std::ptrdiff_t>(static_cast<std::size_t>(packed[g].position) * group_size);
    std::iota(first, first + static_cast<std::ptrdiff_t>(group_size), static_cast<int32_t>(g * group_size));
  }
  return experts;
}

/// A copy of an expert before it has a slot.
struct ExpertCopy {
  int32_t expert = 0;
  int32_t number = 0;  // among the copies of the expert
};

/// One copy of each of `experts`, then more, each of the expert with the most rows per copy: `num_copies` in all.
std::vector<ExpertCopy> replicate(std::span<const float> rows, std::span<const int32_t> experts, int64_t num_copies,
                                  std::vector<int32_t>& copies) {
  std::vector<ExpertCopy> list;
  list.reserve(static_cast<std::size_t>(num_copies));
  const auto add = [&](int32_t expert) { list.push_back({expert, copies[static_cast<std::size_t>(expert)]++}); };
  const auto rows_per_copy = [&](int32_t e) {
    return rows[static_cast<std::size_t>(e)] / static_cast<float>(copies[static_cast<std::size_t>(e)]);
  };
  for (const int32_t e : experts) add(e);
  while (static_cast<int64_t>(list.size()) < num_copies) {
    add(*std::max_element(experts.begin(), experts.end(),
                          [&](int32_t a, int32_t b) { return rows_per_copy(a) < rows_per_copy(b); }));
  }
  return list;
}

void require_divides(int64_t whole, const char* whole_name, int64_t by, const char* by_name) {
  if (by >= 1 && whole % by == 0) return;
  throw_invalid("eplb: " + std::to_string(whole) + " " + whole_name + " over " + std::to_string(by) + " " + by_name +
                "; allowed: a multiple");
}

void check_eplb_input(std::span<const float> rows, const EplbShape& shape) {
  const auto num_experts = static_cast<int64_t>(rows.size());
  require_divides(num_experts, "experts", shape.num_groups, "groups");
  require_divides(shape.num_groups, "groups", shape.num_nodes, "nodes");
  require_divides(shape.num_ranks, "ranks", shape.num_nodes, "nodes");
  require_divides(shape.num_slots, "slots", shape.num_ranks, "ranks");
  if (num_experts == 0 || shape.num_slots < num_experts) {
    throw_invalid("eplb: " + std::to_string(shape.num_slots) + " slots for " + std::to_string(num_experts) +
                  " experts; allowed: one expert or more, and a slot for each");
  }
  for (std::size_t e = 0; e < rows.size(); ++e) {
    if (std::isfinite(rows[e]) && rows[e] >= 0) continue;
    throw_invalid("eplb: expert " + std::to_string(e) + " has a load of " + std::to_string(rows[e]) + "; allowed: 0 or more");
  }
}

}  // namespace

EplbLayer eplb(std::span<const float> rows, const EplbShape& given) {
  EplbShape shape = given;
  if (shape.num_nodes < 1 || shape.num_groups % shape.num_nodes != 0) shape.num_groups = shape.num_nodes = 1;
  check_eplb_input(rows, shape);
  EplbLayer layer{.slot_expert = std::vector<int32_t>(static_cast<std::size_t>(shape.num_slots)),
                  .copies = std::vector<int32_t>(rows.size(), 0),
                  .expert_slots = std::vector<std::vector<int32_t>>(rows.size())};
  const int64_t slots_per_node = shape.num_slots / shape.num_nodes, slots_per_rank = shape.num_slots / shape.num_ranks;
  int64_t first_slot = 0;
  for (const std::vector<int32_t>& experts : node_experts(rows, shape.num_groups, shape.num_nodes)) {
    const std::vector<ExpertCopy> copies = replicate(rows, experts, slots_per_node, layer.copies);
    std::vector<float> load;
    for (const ExpertCopy& copy : copies) {
      const auto e = static_cast<std::size_t>(copy.expert);
      load.push_back(rows[e] / static_cast<float>(layer.copies[e]));
      layer.expert_slots[e].resize(static_cast<std::size_t>(layer.copies[e]));
    }
    const std::vector<PackedItem> packed = pack_equally(load, shape.num_ranks / shape.num_nodes);
    for (std::size_t i = 0; i < copies.size(); ++i) {
      const int64_t slot = first_slot + packed[i].bin * slots_per_rank + packed[i].position;
      layer.slot_expert[static_cast<std::size_t>(slot)] = copies[i].expert;
      layer.expert_slots[static_cast<std::size_t>(copies[i].expert)][static_cast<std::size_t>(copies[i].number)] =
          static_cast<int32_t>(slot);
    }
    first_slot += slots_per_node;
  }
  return layer;
}

int64_t eplb_num_slots(int64_t num_experts, int64_t num_extra, int64_t num_ranks) {
  return (num_experts + num_extra + num_ranks - 1) / num_ranks * num_ranks;
}

LayerPlacement eplb_placement(const EplbLayer& layer, int64_t num_ranks) {
  LayerPlacement placement(static_cast<std::size_t>(num_ranks));
  const std::size_t slots_per_rank = layer.slot_expert.size() / static_cast<std::size_t>(num_ranks);
  for (std::size_t slot = 0; slot < layer.slot_expert.size(); ++slot) {
    std::vector<LogicalExpertId>& experts = placement[slot / slots_per_rank];
    const LogicalExpertId expert{layer.slot_expert[slot]};
    if (std::find(experts.begin(), experts.end(), expert) == experts.end()) experts.push_back(expert);
  }
  return placement;
}

}  // namespace ferry
