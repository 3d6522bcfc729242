#pragma once

#include <array>
#include <cstdint>

#include "kernels/vulkan/physical_device.h"
#include "kernels/vulkan/pipelines.h"
#include "kernels/weight_format.h"
#include "runtime/base/types.h"

// Which kernel multiplies. Of the formats whose sums are rounded, bf16 has one arithmetic on a device, f32 and e4m3 have one
// everywhere, whatever the number of rows; of the integer formats all kernels give the same bits.
//
//   shader                    weights             rows of a tile  what adds
//   slots_matmul(_e4m3)       f32, bf16, e4m3     1, 4, 16 (8)    fp32 fused multiply-adds
//   dot_matmul_(int8, int4)   int8, int4          1, 4, 8         packed dot products
//   dot_matrix_int4           int4                16              cooperative matrices; groups by plain additions
//   stream_matmul(_int8)      bf16, int8          16, 32          cooperative matrices, weights straight from memory
//   tile_matmul(_int8, _int4) bf16, int8, int4    64, 96, 128     cooperative matrices, through shared memory

namespace ferry::vulkan {

struct ProductShape {
  WeightType type;
  DType dtype = DType::kF32;  // of the result
  bool is_gated = false;
  bool has_pieces = false;  // whether rows of x begin and end at multiples of 16 bytes
  int64_t k = 0;
  int64_t num_panels = 0;
  int64_t num_rows = 0;    // of all groups
  int64_t num_groups = 0;  // that have rows
};

/// A kernel as data: its shader, and what a workgroup takes.
struct MatmulPlan {
  const char* shader = nullptr;  // without the dtype
  std::array<uint32_t, Kernel::kMaxConstants> constants{};
  int64_t tile_rows = 0;    // of a MatmulTile at most
  int64_t part_panels = 0;  // of a workgroup
};

/// Whether products with such weights, of many rows at least, are multiplied by cooperative matrices.
bool has_matrices(const DeviceTraits& traits, WeightType type);

/// Depends on nothing else.
MatmulPlan plan_product(const DeviceTraits& traits, const ProductShape& shape);

}  // namespace ferry::vulkan
