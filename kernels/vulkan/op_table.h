#pragma once

#include "kernels/op_table.h"

namespace ferry::vulkan {

/// Every op; the stream is a VulkanStream.
extern const OpTable kOpTable;

}  // namespace ferry::vulkan
