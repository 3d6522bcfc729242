#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "moe/placement/placement_types.h"

// A placement that somebody makes by hand while a job runs, and what is asked of it before anything is done about it.

namespace ferry {

/// What a rank is to hold of a layer.
struct GivenExperts {
  int64_t rank = 0;
  std::vector<int32_t> experts;
};

/// Of every layer with experts, in the model's order; a rank that a layer does not name is to hold nothing of it.
using GivenPlacement = std::vector<std::vector<GivenExperts>>;

/// [num_layers] lists by seat, which is the rank less one, up to the highest that is named. Throws kInvalidArgument that names
/// the layer for another number of layers, more ranks or experts than there can be, ranks that are no worker's or are named
/// twice, experts that the model has not, two copies on one rank, and experts on no rank.
std::vector<LayerPlacement> lay_out_given(const GivenPlacement& given, int64_t num_layers, int64_t num_experts);

/// Who sits where.
struct PlacedSeat {
  bool gets_rows = false;               // and is to stay
  bool has_left = false;                // or is leaving, since the placement began that the given one was made from
  std::optional<int64_t> most_experts;  // of a layer, where it is known that it has no memory for more
};

/// Makes `layers`, of lay_out_given(), as wide as there are seats. Throws kAborted for experts of whom has left, of whom its
/// maker could not know; kInvalidArgument for those of others who do not get rows, or of whom has no room for so many.
void require_seats(std::vector<LayerPlacement>& layers, std::span<const PlacedSeat> seats);

}  // namespace ferry
