#pragma once

#include <algorithm>

#include "kernels/vulkan/devices.h"

namespace ferry::test {

/// Whether `--device vulkan` finds one that can be used. False in a build without Vulkan.
inline bool has_vulkan_device() {
  return std::ranges::any_of(vulkan::list_devices().devices, [](const auto& device) { return device.refusal.empty(); });
}

}  // namespace ferry::test
