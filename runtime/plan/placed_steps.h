#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/placement/choose.h"
#include "moe/placement/load_windows.h"
#include "moe/routing/routing_rows.h"
#include "runtime/plan/plan_types.h"

namespace ferry {

/// What steps ask of the experts: [num_steps, num_layers, num_experts] rows.
struct AskedRows {
  int64_t num_steps = 0;
  int64_t num_layers = 0;
  int64_t num_experts = 0;
  int64_t rows_per_step = 0;  // tokens
  std::vector<int32_t> rows;

  std::span<const int32_t> of(int64_t step, int64_t layer) const {
    return std::span(rows).subspan(static_cast<std::size_t>((step * num_layers + layer) * num_experts),
                                   static_cast<std::size_t>(num_experts));
  }
};

/// `num_steps` steps of `batch` sequences, the first at `first_position`: as ferry bench replays them.
AskedRows asked_by_decode(const RoutingRows& routing, int64_t batch, int64_t first_position, int64_t num_steps);
/// Token [position, position + count) of sequence 0 in one step.
AskedRows asked_by_prefill(const RoutingRows& routing, int64_t position, int64_t count);

/// Whole sums of some steps: every other one from `first` on.
ExpertLoads loads_of(const AskedRows& asked, int64_t first, int64_t stride);

/// Each layer's placement over `workers` equal workers: consecutive slices, or spread by what `loads` cost.
std::vector<LayerPlacement> place(const ExpertLoads& loads, const ExpertCost& cost, int64_t workers, const PlanCopies& copies,
                                  bool is_spread);

/// [num_experts] of a layer: bit w for worker w.
std::vector<uint64_t> holders_of(const LayerPlacement& layer, int64_t num_experts);

}  // namespace ferry
