#include "kernels/vulkan/device.h"

#include <array>
#include <string>
#include <utility>

#include "kernels/vulkan/extensions.h"
#include "kernels/vulkan/pipelines.h"
#include "kernels/vulkan/queue.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry::vulkan {
namespace {

/// The features that find_lacks() asks for, and those that the traits stand for.
struct Features {
  explicit Features(const DeviceTraits& traits) {
    features.features.shaderInt16 = features.features.shaderInt64 = VK_TRUE;
    features11.storageBuffer16BitAccess = VK_TRUE;
    features12.bufferDeviceAddress = features12.scalarBlockLayout = features12.timelineSemaphore = VK_TRUE;
    features12.storageBuffer8BitAccess = features12.shaderInt8 = features12.vulkanMemoryModel = VK_TRUE;
    features12.shaderFloat16 = traits.f16 ? VK_TRUE : VK_FALSE;
    features13.synchronization2 = features13.maintenance4 = features13.subgroupSizeControl = VK_TRUE;
    features13.computeFullSubgroups = features13.shaderIntegerDotProduct = VK_TRUE;
    features.pNext = &features11;
    features11.pNext = &features12;
    features12.pNext = &features13;
    if (traits.bf16 || traits.f16 || traits.int8) {
      matrices.cooperativeMatrix = VK_TRUE;
      features13.pNext = &matrices;
    }
    if (traits.bf16) {
      bfloat16.shaderBFloat16Type = bfloat16.shaderBFloat16CooperativeMatrix = VK_TRUE;
      matrices.pNext = &bfloat16;
    }
  }
  Features(const Features&) = delete;
  Features& operator=(const Features&) = delete;

  VkPhysicalDeviceFeatures2 features{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  VkPhysicalDeviceVulkan11Features features11{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
  VkPhysicalDeviceVulkan12Features features12{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceVulkan13Features features13{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
  CooperativeMatrixFeatures matrices;
  Bfloat16Features bfloat16;
};

/// Properties that memory for a use should have, best first.
std::array<VkMemoryPropertyFlags, 2> wanted_memory(BufferUse use) {
  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  constexpr VkMemoryPropertyFlags kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  switch (use) {
    case BufferUse::kDevice: return {kLocal, kLocal};
    case BufferUse::kTables: return {kHost | kLocal, kHost};
    case BufferUse::kUpload: return {kHost, kHost};
    case BufferUse::kDownload: return {kHost | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, kHost};
  }
  FERRY_CHECK(false);
  return {};
}

std::string mebibytes(uint64_t bytes) { return std::to_string((bytes + (1U << 20) - 1) >> 20) + " MiB"; }

}  // namespace

Buffer::Buffer(Device& device, std::size_t size, BufferUse use) : device_(&device), size_(size) {
  const DeviceFunctions& vk = device.vk();
  if (size > device.traits().max_buffer_bytes)
    throw Error(ErrorCode::kResourceExhausted, device.physical().info.name + " has memory in pieces of up to " +
                                                   mebibytes(device.traits().max_buffer_bytes) + "; needed: one of " +
                                                   mebibytes(size));
  const VkBufferCreateInfo create{.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                  .size = size,
                                  .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                           VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  check(vk.CreateBuffer(device.handle(), &create, nullptr, &buffer_), "making a buffer");
  VkMemoryRequirements needs{};
  vk.GetBufferMemoryRequirements(device.handle(), buffer_, &needs);
  try {
    memory_ = device.allocate(needs, use);
  } catch (...) {
    vk.DestroyBuffer(device.handle(), buffer_, nullptr);
    throw;
  }
  check(vk.BindBufferMemory(device.handle(), buffer_, memory_, 0), "binding a buffer's memory");
  const VkBufferDeviceAddressInfo info{.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = buffer_};
  address_ = vk.GetBufferDeviceAddress(device.handle(), &info);
  if (use == BufferUse::kDevice) return;
  void* mapped = nullptr;
  check(vk.MapMemory(device.handle(), memory_, 0, VK_WHOLE_SIZE, 0, &mapped), "mapping a buffer");
  host_ = static_cast<std::byte*>(mapped);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(buffer_, other.buffer_);
  std::swap(memory_, other.memory_);
  std::swap(address_, other.address_);
  std::swap(host_, other.host_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (device_ == nullptr) return;
  device_->vk().DestroyBuffer(device_->handle(), buffer_, nullptr);
  device_->vk().FreeMemory(device_->handle(), memory_, nullptr);
}

Device::Device(const PhysicalDevice& physical, const std::filesystem::path& cache_folder) : physical_(physical) {
  FERRY_CHECK(physical.info.refusal.empty());
  const InstanceFunctions& instance_vk = instance().functions;
  const float priority = 1.0f;
  const VkDeviceQueueCreateInfo queue{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                      .queueFamilyIndex = physical.queue_family,
                                      .queueCount = 1,
                                      .pQueuePriorities = &priority};
  const Features features(physical.traits);
  const VkDeviceCreateInfo create{.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                  .pNext = &features.features,
                                  .queueCreateInfoCount = 1,
                                  .pQueueCreateInfos = &queue,
                                  .enabledExtensionCount = static_cast<uint32_t>(physical.extensions.size()),
                                  .ppEnabledExtensionNames = physical.extensions.data()};
  check(instance_vk.CreateDevice(physical.handle, &create, nullptr, &device_), ("opening " + physical.info.name).c_str());
  functions_ = load_device_functions(instance_vk, device_);
  VkPhysicalDeviceMemoryProperties2 memory{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  instance_vk.GetPhysicalDeviceMemoryProperties2(physical.handle, &memory);
  memory_ = memory.memoryProperties;
  queue_ = std::make_unique<Queue>(*this);
  pipelines_ = std::make_unique<Pipelines>(*this, PipelineFile(cache_folder, physical.pipeline_owner));
}

Device::~Device() {
  functions_.DeviceWaitIdle(device_);
  pipelines_.reset();
  queue_.reset();
  functions_.DestroyDevice(device_, nullptr);
}

VkDeviceMemory Device::allocate(const VkMemoryRequirements& needs, BufferUse use) {
  const VkMemoryAllocateFlagsInfo flags{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
  for (const VkMemoryPropertyFlags wanted : wanted_memory(use)) {
    for (uint32_t type = 0; type < memory_.memoryTypeCount; ++type) {
      const bool fits =
          (needs.memoryTypeBits >> type & 1U) != 0 && (memory_.memoryTypes[type].propertyFlags & wanted) == wanted;
      if (!fits) continue;
      const VkMemoryAllocateInfo allocate{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                          .pNext = &flags,
                                          .allocationSize = needs.size,
                                          .memoryTypeIndex = type};
      VkDeviceMemory memory = VK_NULL_HANDLE;
      result = functions_.AllocateMemory(device_, &allocate, nullptr, &memory);
      if (result == VK_SUCCESS) return memory;
    }
  }
  if (result != VK_ERROR_OUT_OF_DEVICE_MEMORY && result != VK_ERROR_OUT_OF_HOST_MEMORY) check(result, "allocating memory");
  const std::string all = mebibytes(physical_.info.memory_bytes);
  const std::string there = traits().has_memory_budget ? mebibytes(free_device_bytes(physical_)) + " of " + all + " are free"
                                                       : "it has " + all + " in all";
  throw Error(ErrorCode::kResourceExhausted,
              physical_.info.name + " has no memory left for " + mebibytes(needs.size) + ": " + there);
}

}  // namespace ferry::vulkan
