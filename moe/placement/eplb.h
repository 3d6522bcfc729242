#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/placement/placement_types.h"

// DeepSeek's expert parallelism load balancer (github.com/deepseek-ai/EPLB, eplb.py at d52c72d), as others run it, with the
// ties defined that the original leaves to torch.sort: a stable descending sort, the first maximum, the lowest bin, float32
// throughout with sums in the order of placement. What it does not do, `spread` does: it balances rows and not time, may put
// two copies of an expert on one rank, moves nearly everything, and wants equal shares.

namespace ferry {

struct EplbShape {
  int64_t num_slots = 0;  // physical experts of a layer, over all ranks; a multiple of num_ranks
  int64_t num_groups =
      1;  // of experts, of which a token's lie in few; if no multiple of num_nodes, groups and nodes are ignored
  int64_t num_nodes = 1;  // hosts
  int64_t num_ranks = 1;  // a multiple of num_nodes
};

/// One layer's placement. Rank r has the slots r * num_slots / num_ranks and on.
struct EplbLayer {
  std::vector<int32_t> slot_expert;                // [num_slots] the original's phy2log
  std::vector<int32_t> copies;                     // [num_experts] its logcnt
  std::vector<std::vector<int32_t>> expert_slots;  // [num_experts][copies] its log2phy, without the padding
};

/// Places experts by `rows` [num_experts]: their loads. Throws kInvalidArgument for a shape that does not divide and for a load
/// that is negative or no number.
EplbLayer eplb(std::span<const float> rows, const EplbShape& shape);

/// The least number of slots for experts and extra copies that the ranks share equally, as `eplb` wants it.
int64_t eplb_num_slots(int64_t num_experts, int64_t num_extra, int64_t num_ranks);

/// The experts of each rank. A second copy on the same rank is of no use for speed or after a death: its slot stays empty.
LayerPlacement eplb_placement(const EplbLayer& layer, int64_t num_ranks);

}  // namespace ferry
