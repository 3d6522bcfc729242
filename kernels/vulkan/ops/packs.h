#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/vulkan/ops/views.h"
#include "kernels/weight_format.h"
#include "runtime/base/check.h"

// Rows in packs of 16 bytes (shaders/pack.glsl), and teams of invocations that share a row (shaders/row_team.glsl).

namespace ferry::vulkan {

constexpr int64_t kPackBytes = 16;
/// Invocations of a workgroup where each works for itself.
constexpr uint32_t kElementInvocations = 128;
/// As many as their 32 bits can tell apart, with those behind the last that a folded grid has.
constexpr int64_t kMaxElements = 0xff000000;
/// Elements of a row that one subgroup still works on alone.
constexpr int64_t kMaxSubgroupCols = 512;

/// Sizes and places as shaders have them.
inline uint32_t u32(int64_t value) { return static_cast<uint32_t>(value); }

inline bool is_aligned(uint64_t address) { return address % kPackBytes == 0; }
/// Whether every row begins and ends at a multiple of 16 bytes.
inline bool is_aligned(ConstMatrixView view) {
  const int64_t bytes = dtype_bytes(view.dtype);
  return is_aligned(address_of(view)) && view.cols * bytes % kPackBytes == 0 &&
         (view.rows <= 1 || view.row_stride * bytes % kPackBytes == 0);
}
/// As a specialisation constant: whether that is so for all of them.
inline uint32_t are_aligned(std::initializer_list<ConstMatrixView> views) {
  return std::ranges::all_of(views, [](const ConstMatrixView& view) { return is_aligned(view); }) ? 1 : 0;
}

/// An invocation for each of `count` elements.
inline Grid grid_of_invocations(int64_t count) {
  FERRY_CHECK_LE(count, kMaxElements);
  return grid_of_elements(count, kElementInvocations);
}
/// An invocation a pack of every row.
inline Grid grid_of_packs(ConstMatrixView rows) {
  const int64_t elements_per_pack = kPackBytes / dtype_bytes(rows.dtype);
  return grid_of_invocations(rows.rows * ((rows.cols + elements_per_pack - 1) / elements_per_pack));
}

/// Who shares a row: decided by its length alone, since the order of sums depends on it.
struct RowTeams {
  uint32_t are_subgroups = 0;  // specialisation constant
  uint32_t packs = 0;          // likewise: of an invocation, that hold a row's codes too
  Grid grid;                   // of workgroups of kRowInvocations
};
inline RowTeams teams_for(const VulkanStream& stream, ConstMatrixView rows) {
  const bool are_subgroups = rows.cols <= kMaxSubgroupCols;
  const uint32_t subgroup = stream.traits().subgroup_size, invocations = are_subgroups ? subgroup : kRowInvocations;
  const int64_t step = invocations * (kPackBytes / dtype_bytes(rows.dtype));
  return {.are_subgroups = are_subgroups ? 1U : 0U,
          .packs = static_cast<uint32_t>((quantized_cols(rows.cols) + step - 1) / step),
          .grid = are_subgroups ? grid_of_elements(rows.rows, kRowInvocations / subgroup) : grid_of_rows(rows.rows)};
}

}  // namespace ferry::vulkan
