#include "kernels/vulkan/timestamps.h"

#include "runtime/base/check.h"

namespace ferry::vulkan {

Timestamps::Timestamps(Device& device) : device_(device) {
  const VkQueryPoolCreateInfo create{
      .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, .queryType = VK_QUERY_TYPE_TIMESTAMP, .queryCount = kRoom};
  check(device.vk().CreateQueryPool(device.handle(), &create, nullptr, &pool_), "making room for timestamps");
}

Timestamps::~Timestamps() { device_.vk().DestroyQueryPool(device_.handle(), pool_, nullptr); }

void Timestamps::begin(VkCommandBuffer commands) {
  device_.vk().CmdResetQueryPool(commands, pool_, 0, kRoom);
  size_ = 0;
}

void Timestamps::put(VkCommandBuffer commands) {
  FERRY_CHECK_LT(size_, kRoom);
  device_.vk().CmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, pool_, size_++);
}

std::vector<uint64_t> Timestamps::read() const {
  std::vector<uint64_t> moments(size_);
  const VkResult result = device_.vk().GetQueryPoolResults(device_.handle(), pool_, 0, size_, moments.size() * sizeof(uint64_t),
                                                           moments.data(), sizeof(uint64_t), VK_QUERY_RESULT_64_BIT);
  if (result == VK_NOT_READY) return {};
  check(result, "reading timestamps");
  return moments;
}

}  // namespace ferry::vulkan
