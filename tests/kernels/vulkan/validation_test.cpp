#include <gtest/gtest.h>

#include <array>

#include "kernels/vulkan/commands.h"
#include "kernels/vulkan/pipelines.h"
#include "tests/support/vulkan_device.h"

namespace ferry::vulkan {
namespace {

// The tests of this program run once more under Khronos' validation layer, where a line of the layer fails them. This one is
// wrong on purpose, for that run alone: it shows that the layer is there and that its lines are seen.
TEST(VulkanValidation, DISABLED_SeesPushConstantsOfAnOddSize) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  Device device(*physical);
  Commands commands(device);
  commands.begin();
  const std::array<std::byte, 6> push{};  // a multiple of 4 is allowed
  device.vk().CmdPushConstants(commands.handle(), device.pipelines().layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                               static_cast<uint32_t>(push.size()), push.data());
  commands.end();  // nobody runs them
}

}  // namespace
}  // namespace ferry::vulkan
