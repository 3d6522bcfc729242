#pragma once

#include <filesystem>
#include <optional>

#include "kernels/vulkan/backend.h"
#include "kernels/vulkan/vulkan_stream.h"

namespace ferry::test {

/// The first device that can be used; nothing on a machine without.
inline std::optional<vulkan::PhysicalDevice> find_vulkan_device() {
  for (const vulkan::PhysicalDevice& device : vulkan::find_physical_devices()) {
    if (device.info.refusal.empty()) return device;
  }
  return std::nullopt;
}

/// A device, opened for one test, and a stream on it.
struct VulkanDevice {
  explicit VulkanDevice(const vulkan::PhysicalDevice& physical, DType dtype = DType::kF32,
                        const std::filesystem::path& cache_folder = {})
      : pool(2), backend(physical, dtype, cache_folder), stream(backend.backend(), pool) {}

  Memory& memory() { return stream.memory(); }

  ThreadPool pool;
  vulkan::VulkanBackend backend;
  vulkan::VulkanStream stream;
};

#define FERRY_NEED_VULKAN_DEVICE(name)                   \
  const auto name = ::ferry::test::find_vulkan_device(); \
  if (!name) GTEST_SKIP() << "this machine has no Vulkan device"

}  // namespace ferry::test
