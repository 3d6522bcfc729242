#pragma once

#include <memory>

#include "kernels/matmul.h"
#include "kernels/vulkan/physical_device.h"

namespace ferry::vulkan {

/// Products on the device whose memory that is, recorded on a VulkanStream, of every weight format. The traits may have been
/// lowered. The memory outlives it.
std::unique_ptr<Matmul> make_vulkan_matmul(Memory& memory, const DeviceTraits& traits, DType dtype);

}  // namespace ferry::vulkan
