#include "runtime/plan/placed_steps.h"

#include <algorithm>
#include <cmath>

namespace ferry {
namespace {

AskedRows make_asked(const RoutingTrace& trace, int64_t num_steps, int64_t rows_per_step) {
  AskedRows asked{.num_steps = num_steps,
                  .num_layers = trace.shape.num_layers(),
                  .num_experts = trace.shape.num_experts,
                  .rows_per_step = rows_per_step};
  asked.rows.resize(static_cast<std::size_t>(num_steps * asked.num_layers * asked.num_experts));
  return asked;
}

std::span<int32_t> rows_at(AskedRows& asked, int64_t step, int64_t layer) {
  return std::span(asked.rows)
      .subspan(static_cast<std::size_t>((step * asked.num_layers + layer) * asked.num_experts),
               static_cast<std::size_t>(asked.num_experts));
}

/// As ExpertMap::contiguous: the first num_experts % workers slices are one longer.
LayerPlacement slices(int64_t num_experts, int64_t workers) {
  LayerPlacement layer(static_cast<std::size_t>(workers));
  int32_t expert = 0;
  for (int64_t w = 0; w < workers; ++w) {
    const int64_t count = num_experts / workers + (w < num_experts % workers ? 1 : 0);
    for (int64_t i = 0; i < count; ++i) layer[static_cast<std::size_t>(w)].push_back({expert++});
  }
  return layer;
}

}  // namespace

AskedRows asked_by_decode(const RoutingRows& routing, int64_t batch, int64_t first_position, int64_t num_steps) {
  AskedRows asked = make_asked(routing.trace(), num_steps, batch);
  for (int64_t t = 0; t < num_steps; ++t) {
    for (int64_t s = 0; s < batch; ++s) {
      for (int64_t l = 0; l < asked.num_layers; ++l)
        routing.add_rows(RoutingPhase::kDecode, s, first_position + t, 1, l, rows_at(asked, t, l));
    }
  }
  return asked;
}

AskedRows asked_by_prefill(const RoutingRows& routing, int64_t position, int64_t count) {
  AskedRows asked = make_asked(routing.trace(), 1, count);
  for (int64_t l = 0; l < asked.num_layers; ++l)
    routing.add_rows(RoutingPhase::kPrefill, 0, position, count, l, rows_at(asked, 0, l));
  return asked;
}

ExpertLoads loads_of(const AskedRows& asked, int64_t first, int64_t stride) {
  const auto size = static_cast<std::size_t>(asked.num_layers * asked.num_experts);
  ExpertLoads loads{.num_layers = asked.num_layers, .num_experts = asked.num_experts};
  loads.rows.assign(size, 0);
  loads.touched.assign(size, 0);
  for (int64_t t = first; t < asked.num_steps; t += stride) {
    ++loads.num_steps;
    for (std::size_t i = 0; i < size; ++i) {
      const int32_t rows = asked.rows[static_cast<std::size_t>(t) * size + i];
      loads.rows[i] += rows;
      loads.touched[i] += rows > 0 ? 1 : 0;
    }
  }
  return loads;
}

std::vector<LayerPlacement> place(const ExpertLoads& loads, const ExpertCost& cost, int64_t workers, const PlanCopies& copies,
                                  bool is_spread) {
  const bool is_twice = copies.kind == Redundancy::Kind::kTwice && workers > 1;
  const auto extra = static_cast<int64_t>(std::llround(copies.extra_share * static_cast<double>(loads.num_experts)));
  const Redundancy redundancy{.kind = is_twice ? Redundancy::Kind::kTwice : Redundancy::Kind::kExtraSlots,
                              .extra_slots = is_twice ? 0 : extra};
  const int64_t slots = is_twice ? 2 * loads.num_experts : loads.num_experts + extra;
  const auto per_worker = static_cast<int32_t>((slots + workers - 1) / workers);
  const std::vector<WorkerCapacity> rooms(static_cast<std::size_t>(workers), {.slots = per_worker, .speed = 1});
  std::vector<LayerPlacement> layers;
  for (int64_t l = 0; l < loads.num_layers; ++l) {
    const bool is_plain = !is_twice && extra == 0 && !is_spread;
    layers.push_back(is_plain ? slices(loads.num_experts, workers) : spread(expected_cost(loads, l, cost), rooms, redundancy));
  }
  return layers;
}

std::vector<uint64_t> holders_of(const LayerPlacement& layer, int64_t num_experts) {
  std::vector<uint64_t> holders(static_cast<std::size_t>(num_experts));
  for (std::size_t w = 0; w < layer.size(); ++w)
    for (const LogicalExpertId e : layer[w]) holders[static_cast<std::size_t>(e.value)] |= uint64_t{1} << w;
  return holders;
}

}  // namespace ferry
