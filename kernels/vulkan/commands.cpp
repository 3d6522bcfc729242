#include "kernels/vulkan/commands.h"

namespace ferry::vulkan {
namespace {

struct Side {
  VkPipelineStageFlags2 stages;
  VkAccessFlags2 accesses;
};

constexpr VkPipelineStageFlags2 kCompute = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, kCopies = VK_PIPELINE_STAGE_2_TRANSFER_BIT;
constexpr Side kDispatchesWrite = {kCompute, VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT};
constexpr Side kDispatchesFollow = {kCompute, VK_ACCESS_2_SHADER_STORAGE_READ_BIT | VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT};
constexpr Side kAllWrite = {kCompute | kCopies, kDispatchesWrite.accesses | VK_ACCESS_2_TRANSFER_WRITE_BIT};
constexpr Side kAllFollow = {kCompute | kCopies,
                             kDispatchesFollow.accesses | VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT};
constexpr Side kHostReads = {VK_PIPELINE_STAGE_2_HOST_BIT, VK_ACCESS_2_HOST_READ_BIT};

void put_barrier(Device& device, VkCommandBuffer commands, const Side& before, const Side& behind) {
  const VkMemoryBarrier2 barrier{.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                                 .srcStageMask = before.stages,
                                 .srcAccessMask = before.accesses,
                                 .dstStageMask = behind.stages,
                                 .dstAccessMask = behind.accesses};
  const VkDependencyInfo dependency{
      .sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO, .memoryBarrierCount = 1, .pMemoryBarriers = &barrier};
  device.vk().CmdPipelineBarrier2(commands, &dependency);
}

}  // namespace

Commands::Commands(Device& device) : device_(device) {
  const VkCommandPoolCreateInfo create{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                       .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                       .queueFamilyIndex = device.physical().queue_family};
  check(device.vk().CreateCommandPool(device.handle(), &create, nullptr, &pool_), "making a command pool");
  const VkCommandBufferAllocateInfo allocate{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                             .commandPool = pool_,
                                             .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                             .commandBufferCount = 1};
  check(device.vk().AllocateCommandBuffers(device.handle(), &allocate, &commands_), "making a command buffer");
}

Commands::~Commands() { device_.vk().DestroyCommandPool(device_.handle(), pool_, nullptr); }

void Commands::begin() {
  check(device_.vk().ResetCommandPool(device_.handle(), pool_, 0), "resetting commands");
  const VkCommandBufferBeginInfo begin{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                       .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  check(device_.vk().BeginCommandBuffer(commands_, &begin), "recording commands");
}

void Commands::end() { check(device_.vk().EndCommandBuffer(commands_), "recording commands"); }

void Commands::barrier(Scope scope) {
  const bool is_all = scope == Scope::kAll;
  put_barrier(device_, commands_, is_all ? kAllWrite : kDispatchesWrite, is_all ? kAllFollow : kDispatchesFollow);
}

void Commands::barrier_to_host() { put_barrier(device_, commands_, kAllWrite, kHostReads); }

}  // namespace ferry::vulkan
