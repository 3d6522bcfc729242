#include <algorithm>
#include <initializer_list>

#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_rows.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

/// The largest unit of copies that all numbers of bytes and addresses are multiples of.
uint32_t unit_of(std::initializer_list<uint64_t> bytes) {
  for (const uint32_t unit : {16U, 4U, 2U}) {
    if (std::ranges::all_of(bytes, [&](uint64_t count) { return count % unit == 0; })) return unit;
  }
  return 1;
}

void check_indices(std::span<const int32_t> indices, int64_t end, const char* what) {
  for (const int32_t index : indices) FERRY_CHECK(index >= 0 && index < end) << what << index;
}

/// out[i] = x[row_idx[i]] for rows of one dtype, and likewise of scales if there are any.
void copy_chosen_rows(VulkanStream& stream, ConstMatrixView x, std::span<const int32_t> row_idx, MatrixView out,
                      Address<const float> scales = {}, Address<float> out_scales = {}) {
  const auto bytes_of = [&](int64_t elements) { return static_cast<uint64_t>(elements * dtype_bytes(out.dtype)); };
  GatherRowsPush push{.x = address_of(x),
                      .result = address_of(out),
                      .row_idx = stream.upload(row_idx),
                      .scales = address_of(scales),
                      .result_scales = address_of(out_scales),
                      .x_row_bytes = bytes_of(x.row_stride),
                      .result_row_bytes = bytes_of(out.row_stride),
                      .rows = static_cast<uint32_t>(out.rows)};
  const uint32_t unit = unit_of({push.x, push.result, push.x_row_bytes, push.result_row_bytes, bytes_of(out.cols)});
  push.units_per_row = static_cast<uint32_t>(bytes_of(out.cols) / unit);
  stream.reads(x);
  stream.writes(out);
  if (scales) {
    stream.reads(scales, x.rows);
    stream.writes(out_scales, out.rows);
  }
  stream.dispatch({find_shader("gather_rows"), {kElementInvocations, unit}}, push,
                  grid_of_invocations(out.rows * push.units_per_row));
}

/// The bytes from the first to the last of rows that may lie anywhere.
Range range_of_rows(std::span<const std::byte* const> rows, uint64_t row_bytes) {
  Range range;
  for (const std::byte* row : rows) {
    if (row == nullptr) continue;
    const auto address = reinterpret_cast<uint64_t>(row);
    range.begin = range.is_empty() ? address : std::min(range.begin, address);
    range.end = std::max(range.end, address + row_bytes);
  }
  return range;
}

}  // namespace

void embed(VulkanStream& stream, const EmbedArgs& args) {
  FERRY_CHECK_EQ(args.table.cols, args.out.cols);
  FERRY_CHECK_EQ(static_cast<int64_t>(args.ids.size()), args.out.rows);
  check_indices(args.ids, args.table.rows, " token id ");
  if (args.out.rows == 0) return;
  if (args.table.dtype == args.out.dtype) return copy_chosen_rows(stream, args.table, args.ids, args.out);
  stream.reads(args.table);
  stream.writes(args.out);
  const EmbedPush push{.table = address_of(args.table),
                       .result = address_of(args.out),
                       .ids = stream.upload(args.ids),
                       .table_stride = stride_of(args.table),
                       .result_stride = stride_of(args.out),
                       .rows = static_cast<uint32_t>(args.out.rows),
                       .cols = static_cast<uint32_t>(args.out.cols)};
  stream.dispatch({find_shader("embed", args.out.dtype), {kElementInvocations}}, push,
                  grid_of_invocations(args.out.rows * args.out.cols));
}

void gather_rows(VulkanStream& stream, const GatherRowsArgs& args) {
  FERRY_CHECK_EQ(args.x.cols, args.out.cols);
  FERRY_CHECK(args.x.dtype == args.out.dtype);
  FERRY_CHECK_EQ(static_cast<int64_t>(args.row_idx.size()), args.out.rows);
  check_indices(args.row_idx, args.x.rows, " row index ");
  if (args.out.rows == 0) return;
  copy_chosen_rows(stream, args.x, args.row_idx, args.out, args.scales, args.out_scales);
}

void combine(VulkanStream& stream, const CombineArgs& args) {
  const bool has_indices = args.rows.data != nullptr;
  const int64_t num_slots = args.out.rows * args.num_slots;
  FERRY_CHECK(has_indices || std::ssize(args.slot_rows) == num_slots);
  if (args.out.rows == 0) return;
  bool is_x_aligned = true;
  if (has_indices) {
    stream.reads(args.rows);
    stream.reads(args.slot_row, num_slots);
    is_x_aligned = are_aligned({args.rows}) != 0;
  } else {
    stream.reads(range_of_rows(args.slot_rows, static_cast<uint64_t>(args.out.cols * dtype_bytes(args.out.dtype))));
    is_x_aligned =
        std::ranges::all_of(args.slot_rows, [](const std::byte* row) { return is_aligned(reinterpret_cast<uint64_t>(row)); });
  }
  stream.reads(args.slot_weights, num_slots);
  stream.writes(args.out);
  const CombinePush push{.slot_rows = has_indices ? 0 : stream.upload(args.slot_rows),
                         .slot_row_idx = address_of(args.slot_row),
                         .x = address_of(args.rows),
                         .slot_weights = address_of(args.slot_weights),
                         .result = address_of(args.out),
                         .x_stride = stride_of(args.rows),
                         .result_stride = stride_of(args.out),
                         .num_slots = static_cast<uint32_t>(args.num_slots),
                         .rows = static_cast<uint32_t>(args.out.rows),
                         .cols = static_cast<uint32_t>(args.out.cols)};
  const uint32_t aligned = is_x_aligned ? are_aligned({args.out}) : 0;
  stream.dispatch({find_shader("combine", args.out.dtype), {kElementInvocations, aligned}}, push, grid_of_packs(args.out));
}

}  // namespace ferry::vulkan
