#pragma once

#include "kernels/ops.h"
#include "kernels/vulkan/vulkan_stream.h"

namespace ferry::vulkan {

/// What causal_conv1d does to the states, for who has convolved by other means.
void update_conv_states(VulkanStream& stream, const CausalConv1dArgs& args);

}  // namespace ferry::vulkan
