#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "moe/expert_placement.h"
#include "moe/wire.h"

// Which experts a worker is to hold, as its coordinator tells it:
//
//   WireHeader | number of layers i32 | of each layer: number of experts i32 | of each layer: their ids i32 [count]

namespace ferry {

constexpr int kAssignmentTag = 4;

std::vector<std::byte> encode_assignment(uint32_t epoch, const RankExperts& experts);
/// Of a model with so many layers with experts and so many experts.
int64_t max_assignment_bytes(int64_t num_layers, int64_t num_experts);

struct Assignment {
  uint32_t epoch = 0;
  RankExperts experts;  // none: there is nothing to do
};
/// Throws Error{kInternal} for anything but an assignment of such a model, or of no layers. Ids of a layer are all different.
Assignment decode_assignment(std::span<const std::byte> message, int64_t num_layers, int64_t num_experts);

}  // namespace ferry
