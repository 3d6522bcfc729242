#include <cstdlib>
#include <cstring>
#include <memory>

#include <vulkan/vk_icd.h>
#include <vulkan/vulkan.h>

// A Vulkan driver whose card is not there, as in a container that has the driver alone: the loader takes it, and it has no
// device. EMPTY_DRIVER_RESULT in the environment is what its vkEnumeratePhysicalDevices returns, 0 by default.

namespace {

struct Instance {
  VK_LOADER_DATA loader;  // first, as the loader asks
};

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo*, const VkAllocationCallbacks*, VkInstance* made) {
  auto instance = std::make_unique<Instance>();
  set_loader_magic_value(instance.get());
  *made = reinterpret_cast<VkInstance>(instance.release());
  return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance instance, const VkAllocationCallbacks*) {
  const std::unique_ptr<Instance> owned(reinterpret_cast<Instance*>(instance));
}

VKAPI_ATTR VkResult VKAPI_CALL list_devices(VkInstance, uint32_t* count, VkPhysicalDevice*) {
  *count = 0;
  const char* result = std::getenv("EMPTY_DRIVER_RESULT");  // NOLINT(concurrency-mt-unsafe)
  return static_cast<VkResult>(result == nullptr ? 0 : std::atoi(result));
}

VKAPI_ATTR VkResult VKAPI_CALL list_extensions(const char*, uint32_t* count, VkExtensionProperties*) {
  *count = 0;
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL version(uint32_t* version) {
  *version = VK_API_VERSION_1_3;
  return VK_SUCCESS;
}

/// Of a device, which there is not.
VKAPI_ATTR void VKAPI_CALL unreachable() { std::abort(); }

}  // namespace

extern "C" {

__attribute__((visibility("default"))) VkResult vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t* version) {
  *version = 5;
  return VK_SUCCESS;
}

__attribute__((visibility("default"))) PFN_vkVoidFunction vk_icdGetInstanceProcAddr(VkInstance, const char* name) {
  const struct {
    const char* name;
    PFN_vkVoidFunction function;
  } functions[] = {
      {"vkCreateInstance", reinterpret_cast<PFN_vkVoidFunction>(create_instance)},
      {"vkDestroyInstance", reinterpret_cast<PFN_vkVoidFunction>(destroy_instance)},
      {"vkEnumeratePhysicalDevices", reinterpret_cast<PFN_vkVoidFunction>(list_devices)},
      {"vkEnumerateInstanceExtensionProperties", reinterpret_cast<PFN_vkVoidFunction>(list_extensions)},
      {"vkEnumerateInstanceVersion", reinterpret_cast<PFN_vkVoidFunction>(version)},
  };
  for (const auto& known : functions) {
    if (std::strcmp(known.name, name) == 0) return known.function;
  }
  return std::strncmp(name, "vk_icd", 6) == 0 ? nullptr : reinterpret_cast<PFN_vkVoidFunction>(unreachable);
}

}  // extern "C"
