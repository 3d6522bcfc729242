#include <algorithm>

#include "kernels/vulkan/ops/vulkan_ops.h"

namespace ferry::vulkan {

int64_t op_scratch_bytes(const DeviceTraits& traits, const OpLimits& limits) {
  return std::max({attention_scratch_bytes(limits), gated_delta_rule_scratch_bytes(traits, limits),
                   argmax_scratch_bytes(limits), expert_rows_scratch_bytes(limits)});
}

}  // namespace ferry::vulkan
