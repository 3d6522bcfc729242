#include "kernels/vulkan/api.h"

#include <dlfcn.h>

#include "runtime/base/error.h"

namespace ferry::vulkan {
namespace {

constexpr const char* kLibrary = "libvulkan.so.1";

Loader open_loader() {
  Loader loader;
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one for each thread
    loader.lack = std::string("no Vulkan loader: ") + (why == nullptr ? kLibrary : why);
    return loader;
  }
  loader.GetInstanceProcAddr = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  if (loader.GetInstanceProcAddr == nullptr) {
    loader.lack = std::string(kLibrary) + " is no Vulkan loader: it lacks vkGetInstanceProcAddr";
    return loader;
  }
#define FERRY_VULKAN_FIND(name)                                                                         \
  loader.name = reinterpret_cast<PFN_vk##name>(loader.GetInstanceProcAddr(VK_NULL_HANDLE, "vk" #name)); \
  if (loader.name == nullptr) loader.lack = std::string(kLibrary) + " is too old: it lacks vk" #name;
  FERRY_VULKAN_GLOBAL_FUNCTIONS(FERRY_VULKAN_FIND)
#undef FERRY_VULKAN_FIND
  return loader;
}

[[noreturn]] void throw_missing(const char* function) {
  throw Error(ErrorCode::kInternal, std::string("the Vulkan driver lacks ") + function);
}

}  // namespace

const Loader& loader() {
  static const Loader opened = open_loader();
  return opened;
}

InstanceFunctions load_instance_functions(VkInstance instance) {
  InstanceFunctions functions;
  const PFN_vkGetInstanceProcAddr get = loader().GetInstanceProcAddr;
#define FERRY_VULKAN_FIND(name)                                               \
  functions.name = reinterpret_cast<PFN_vk##name>(get(instance, "vk" #name)); \
  if (functions.name == nullptr) throw_missing("vk" #name);
  FERRY_VULKAN_INSTANCE_FUNCTIONS(FERRY_VULKAN_FIND)
#undef FERRY_VULKAN_FIND
  functions.GetCooperativeMatrixProperties = reinterpret_cast<GetCooperativeMatrixPropertiesFunction>(
      get(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  for (const char* name :
       {"vkGetPhysicalDeviceCalibrateableTimeDomainsEXT", "vkGetPhysicalDeviceCalibrateableTimeDomainsKHR"}) {
    if (functions.GetCalibrateableTimeDomains != nullptr) break;
    functions.GetCalibrateableTimeDomains =
        reinterpret_cast<PFN_vkGetPhysicalDeviceCalibrateableTimeDomainsEXT>(get(instance, name));
  }
  return functions;
}

DeviceFunctions load_device_functions(const InstanceFunctions& instance, VkDevice device) {
  DeviceFunctions functions;
#define FERRY_VULKAN_FIND(name)                                                                    \
  functions.name = reinterpret_cast<PFN_vk##name>(instance.GetDeviceProcAddr(device, "vk" #name)); \
  if (functions.name == nullptr) throw_missing("vk" #name);
  FERRY_VULKAN_DEVICE_FUNCTIONS(FERRY_VULKAN_FIND)
#undef FERRY_VULKAN_FIND
  for (const char* name : {"vkGetCalibratedTimestampsEXT", "vkGetCalibratedTimestampsKHR"}) {
    if (functions.GetCalibratedTimestamps != nullptr) break;
    functions.GetCalibratedTimestamps =
        reinterpret_cast<PFN_vkGetCalibratedTimestampsEXT>(instance.GetDeviceProcAddr(device, name));
  }
  return functions;
}

const char* result_name(VkResult result) {
  switch (result) {
    case VK_SUCCESS: return "success";
    case VK_TIMEOUT: return "it did not finish in time";
    case VK_ERROR_OUT_OF_HOST_MEMORY: return "out of host memory";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY: return "out of device memory";
    case VK_ERROR_INITIALIZATION_FAILED: return "initialisation failed";
    case VK_ERROR_DEVICE_LOST: return "the device is lost";
    case VK_ERROR_MEMORY_MAP_FAILED: return "memory cannot be mapped";
    case VK_ERROR_LAYER_NOT_PRESENT: return "a layer is missing";
    case VK_ERROR_EXTENSION_NOT_PRESENT: return "an extension is missing";
    case VK_ERROR_FEATURE_NOT_PRESENT: return "a feature is missing";
    case VK_ERROR_INCOMPATIBLE_DRIVER: return "no driver fits";
    case VK_ERROR_TOO_MANY_OBJECTS: return "too many objects";
    default: return "the driver failed";
  }
}

void check(VkResult result, const char* what) {
  if (result == VK_SUCCESS) return;
  ErrorCode code = ErrorCode::kInternal;
  if (result == VK_ERROR_DEVICE_LOST || result == VK_TIMEOUT) code = ErrorCode::kUnavailable;
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY) code = ErrorCode::kResourceExhausted;
  throw Error(code, std::string("Vulkan: ") + what + ": " + result_name(result) + " (" +
                        std::to_string(static_cast<int>(result)) + ")");
}

}  // namespace ferry::vulkan
