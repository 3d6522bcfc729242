#include "runtime/model/layer_plan.h"

#include <numeric>

namespace ferry {

const char* mixer_name(Mixer mixer) {
  switch (mixer) {
    case Mixer::kGatedDelta: return "linear_attention";
    case Mixer::kAttention: return "full_attention";
    case Mixer::kShortConv: return "short_conv";
  }
  return "";
}

std::optional<MoePlan> slice(const DensePlan& dense, int64_t block_cols) {
  constexpr int64_t kMaxSlices = 8;           // each sends a row back for every token
  for (const int64_t multiple : {128, 32}) {  // also of the groups of columns that quantised rows are cut into
    const int64_t unit = std::lcm(multiple, block_cols);
    for (int64_t count = kMaxSlices; count > 1; --count) {
      if (dense.intermediate_dim % (count * unit) != 0) continue;
      return MoePlan{
          .num_experts = count, .top_k = count, .intermediate_dim = dense.intermediate_dim / count, .is_sliced = true};
    }
  }
  return std::nullopt;
}

}  // namespace ferry
