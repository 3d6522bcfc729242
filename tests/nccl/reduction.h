#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "tests/nccl/element_types.h"

namespace ferry::nccl {

/// One of NCCL's reductions over `count` elements: ncclSum to ncclAvg, or, as ncclNumOps, the sum of contributions that are
/// each multiplied by a scalar of their rank's.
struct Reduction {
  ncclRedOp_t op = ncclSum;
  ncclDataType_t type = ncclFloat32;
  std::size_t count = 0;
  std::array<std::byte, 8> scalar{};  // of ncclNumOps, an element

  std::size_t bytes() const { return count * element_bytes(type); }
};

/// What a rank contributes, `data`, which has any number of elements, multiplied if need be.
std::vector<std::byte> contribution(const Reduction& reduction, std::span<const std::byte> data);

/// `parts` holds num_ranks contributions, one behind the other. Reduces them in the order of ranks into `out`, which has
/// reduction.bytes(): the same bits whatever carried them.
void reduce_in_rank_order(const Reduction& reduction, std::span<const std::byte> parts, int num_ranks,
                          std::span<std::byte> out);

}  // namespace ferry::nccl
