#pragma once

#include "kernels/ops.h"
#include "kernels/vulkan/physical_device.h"
#include "kernels/vulkan/pipelines.h"

// Which kernel attends a tile of query rows: one that works with cooperative matrices, or one in plain fp32.

namespace ferry::vulkan {

/// How a workgroup takes query rows.
struct AttentionTile {
  int64_t rows = 0;  // at most
  Kernel kernel;
};

/// Two sizes of tiles, with which a row gets the same bits. All calls on a device with caches of one kind get one arithmetic.
struct AttentionTiles {
  AttentionTile small, large;
};
AttentionTiles choose_attention_tiles(const DeviceTraits& traits, const AttentionArgs& args);

}  // namespace ferry::vulkan
