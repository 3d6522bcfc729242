#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include <cstdint>
#include <string>

// Vulkan's functions, found in the loader library when somebody first asks for a device: a machine without one needs no Vulkan.

namespace ferry::vulkan {

#define FERRY_VULKAN_GLOBAL_FUNCTIONS(X) X(CreateInstance) X(EnumerateInstanceVersion) X(EnumerateInstanceExtensionProperties)

#define FERRY_VULKAN_INSTANCE_FUNCTIONS(X)  \
  X(DestroyInstance)                        \
  X(EnumeratePhysicalDevices)               \
  X(EnumerateDeviceExtensionProperties)     \
  X(GetPhysicalDeviceProperties2)           \
  X(GetPhysicalDeviceFeatures2)             \
  X(GetPhysicalDeviceMemoryProperties2)     \
  X(GetPhysicalDeviceQueueFamilyProperties) \
  X(CreateDevice)                           \
  X(GetDeviceProcAddr)

#define FERRY_VULKAN_DEVICE_FUNCTIONS(X) \
  X(DestroyDevice)                       \
  X(GetDeviceQueue)                      \
  X(CreateBuffer)                        \
  X(DestroyBuffer)                       \
  X(GetBufferMemoryRequirements)         \
  X(BindBufferMemory)                    \
  X(GetBufferDeviceAddress)              \
  X(AllocateMemory)                      \
  X(FreeMemory)                          \
  X(MapMemory)                           \
  X(CreateShaderModule)                  \
  X(DestroyShaderModule)                 \
  X(CreatePipelineLayout)                \
  X(DestroyPipelineLayout)               \
  X(CreatePipelineCache)                 \
  X(DestroyPipelineCache)                \
  X(GetPipelineCacheData)                \
  X(CreateComputePipelines)              \
  X(DestroyPipeline)                     \
  X(CreateCommandPool)                   \
  X(DestroyCommandPool)                  \
  X(ResetCommandPool)                    \
  X(AllocateCommandBuffers)              \
  X(BeginCommandBuffer)                  \
  X(EndCommandBuffer)                    \
  X(CmdBindPipeline)                     \
  X(CmdPushConstants)                    \
  X(CmdDispatch)                         \
  X(CmdCopyBuffer)                       \
  X(CmdFillBuffer)                       \
  X(CmdPipelineBarrier2)                 \
  X(CmdWriteTimestamp2)                  \
  X(CmdResetQueryPool)                   \
  X(CreateQueryPool)                     \
  X(DestroyQueryPool)                    \
  X(GetQueryPoolResults)                 \
  X(CreateSemaphore)                     \
  X(DestroySemaphore)                    \
  X(WaitSemaphores)                      \
  X(GetSemaphoreCounterValue)            \
  X(QueueSubmit2)                        \
  X(DeviceWaitIdle)

struct CooperativeMatrixProperties;
using GetCooperativeMatrixPropertiesFunction = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*, CooperativeMatrixProperties*);

#define FERRY_VULKAN_MEMBER(name) PFN_vk##name name = nullptr;

/// The loader. Throws nothing: `lack` says what is missing.
struct Loader {
  FERRY_VULKAN_GLOBAL_FUNCTIONS(FERRY_VULKAN_MEMBER)
  PFN_vkGetInstanceProcAddr GetInstanceProcAddr = nullptr;
  std::string lack;  // empty if the library and its functions are there
};
/// Opens the library once, for the life of the process. Any thread.
const Loader& loader();

struct InstanceFunctions {
  FERRY_VULKAN_INSTANCE_FUNCTIONS(FERRY_VULKAN_MEMBER)
  GetCooperativeMatrixPropertiesFunction GetCooperativeMatrixProperties = nullptr;           // where devices have it
  PFN_vkGetPhysicalDeviceCalibrateableTimeDomainsEXT GetCalibrateableTimeDomains = nullptr;  // likewise
};
struct DeviceFunctions {
  FERRY_VULKAN_DEVICE_FUNCTIONS(FERRY_VULKAN_MEMBER)
  PFN_vkGetCalibratedTimestampsEXT GetCalibratedTimestamps = nullptr;  // where the extension is enabled
};

#undef FERRY_VULKAN_MEMBER

/// Throw Error{kInternal} that names a function which is missing.
InstanceFunctions load_instance_functions(VkInstance instance);
DeviceFunctions load_device_functions(const InstanceFunctions& functions, VkDevice device);

/// Throws what a failed call comes to: Error{kUnavailable} for a lost device, kResourceExhausted for memory, else kInternal.
/// `what` was tried.
void check(VkResult result, const char* what);
const char* result_name(VkResult result);

}  // namespace ferry::vulkan
