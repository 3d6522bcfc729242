#include <algorithm>

#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_argmax.h"

namespace ferry::vulkan {
namespace {

constexpr int64_t kMaxRows = 65535;  // Vulkan's least maxComputeWorkGroupCount

// Columns that a workgroup looks at: few where few rows are to fill a device, more where they do so anyway.
constexpr int64_t kFewRows = 8, kPartColsOfFewRows = 2048, kPartCols = 8192;

/// How rows of so many columns are cut up; each part leaves 8 bytes.
struct ArgmaxParts {
  ArgmaxParts(int64_t num_rows, int64_t num_cols)
      : cols(num_rows <= kFewRows ? kPartColsOfFewRows : kPartCols),
        count((num_cols + cols - 1) / cols),
        bytes(num_rows * count * int64_t{sizeof(uint64_t)}) {}

  int64_t cols, count;  // of a row
  int64_t bytes;        // of all rows
};

}  // namespace

int64_t argmax_scratch_bytes(const OpLimits& limits) {
  const int64_t few = std::min(limits.max_logit_rows, kFewRows);
  return std::max(ArgmaxParts(few, limits.vocab_size).bytes, ArgmaxParts(limits.max_logit_rows, limits.vocab_size).bytes);
}

void argmax(VulkanStream& stream, const ArgmaxArgs& args) {
  const int64_t num_rows = std::ssize(args.rows);
  FERRY_CHECK_LE(num_rows, kMaxRows);
  for (const int32_t row : args.rows) FERRY_CHECK(row >= 0 && row < args.x.rows) << " row index " << row;
  if (num_rows == 0) return;
  const ArgmaxParts cut(num_rows, args.x.cols);
  const auto parts_bytes = static_cast<std::size_t>(cut.bytes);
  const uint64_t parts = stream.scratch(parts_bytes);
  const Range parts_range{parts, parts + parts_bytes};
  const ArgmaxPush push{.x = address_of(args.x),
                        .row_idx = stream.upload(args.rows),
                        .parts = parts,
                        .ids = address_of(args.ids),
                        .x_stride = stride_of(args.x),
                        .cols = static_cast<uint32_t>(args.x.cols),
                        .part_cols = static_cast<uint32_t>(cut.cols),
                        .num_parts = static_cast<uint32_t>(cut.count)};
  stream.reads(args.x);
  stream.writes(parts_range);
  stream.dispatch({find_shader("argmax_parts", args.x.dtype), {kRowInvocations, are_aligned({args.x})}}, push,
                  {static_cast<uint32_t>(cut.count), static_cast<uint32_t>(num_rows)});
  stream.reads(parts_range);
  stream.writes(args.ids, args.x.rows);
  stream.dispatch({find_shader("argmax"), {kElementInvocations}}, push, {1, static_cast<uint32_t>(num_rows)});
}

}  // namespace ferry::vulkan
