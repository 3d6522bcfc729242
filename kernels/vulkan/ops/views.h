#pragma once

#include <cstdint>

#include "kernels/tensor.h"
#include "kernels/vulkan/vulkan_stream.h"

// How ops put their arguments into push constants.

namespace ferry::vulkan {

/// Invocations of a workgroup that works on one row.
constexpr uint32_t kRowInvocations = 256;

/// Device addresses; null becomes 0.
inline uint64_t address_of(ConstMatrixView view) { return reinterpret_cast<uint64_t>(view.data); }
template <class T>
uint64_t address_of(Address<T> address) {
  return reinterpret_cast<uint64_t>(address.raw());
}
inline uint32_t stride_of(ConstMatrixView view) { return static_cast<uint32_t>(view.row_stride); }

/// A workgroup a row, folded where there are more than a device must take along one axis: a shader's row is
/// gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x, and rows behind the last are left alone.
Grid grid_of_rows(int64_t rows);
/// Enough workgroups of `invocations` for `count` elements, folded likewise.
Grid grid_of_elements(int64_t count, uint32_t invocations);

}  // namespace ferry::vulkan
