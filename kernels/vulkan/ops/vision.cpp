#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/op_checks.h"
#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_vision.h"
#include "runtime/base/check.h"

// The ops of the vision tower alone, but for its norm (norm.cpp) and its rotation (rope.cpp).

namespace ferry::vulkan {
namespace {

uint32_t finish_of(const AddBiasArgs& args) {
  if (args.residual.data != nullptr) return kBiasResidual;
  switch (args.activation) {
    case BiasActivation::kNone: return kPlainBias;
    case BiasActivation::kGeluTanh: return kBiasGeluTanh;
    case BiasActivation::kGelu: return kBiasGelu;
  }
  return kPlainBias;
}

/// The work of segment_attention's workgroups. A piece begins where its segment does, or a multiple of kAttentionTile behind.
std::vector<SegmentRows> cut_segments(std::span<const int64_t> segment_ends) {
  std::vector<SegmentRows> pieces;
  uint32_t begin = 0;
  for (const int64_t next : segment_ends) {
    const auto end = static_cast<uint32_t>(next);
    FERRY_CHECK_LE(begin, end);
    for (uint32_t first = begin; first < end; first += kAttentionTile) pieces.push_back({first, begin, end});
    begin = end;
  }
  return pieces;
}

}  // namespace

void add_bias(VulkanStream& stream, const AddBiasArgs& args) {
  const bool has_residual = args.residual.data != nullptr;
  check_bias_shape(args);
  stream.reads(args.x);
  stream.reads(args.bias, args.x.cols);
  if (has_residual) stream.reads(args.residual);
  stream.writes(args.out);
  const AddBiasPush push{.x = address_of(args.x),
                         .bias = address_of(args.bias),
                         .residual = address_of(args.residual),
                         .result = address_of(args.out),
                         .x_stride = stride_of(args.x),
                         .residual_stride = stride_of(args.residual),
                         .result_stride = stride_of(args.out),
                         .rows = static_cast<uint32_t>(args.x.rows),
                         .cols = static_cast<uint32_t>(args.x.cols)};
  const ConstMatrixView residual = has_residual ? args.residual : args.x;
  const uint32_t aligned = is_aligned(push.bias) ? are_aligned({args.x, residual, args.out}) : 0;
  stream.dispatch({find_shader("add_bias", args.out.dtype), {kElementInvocations, aligned, finish_of(args)}}, push,
                  grid_of_packs(args.out));
}

void segment_attention(VulkanStream& stream, const SegmentAttentionArgs& args) {
  check_segments(args);
  const int64_t head_dim = args.out.cols / args.num_heads;
  FERRY_CHECK_LE(head_dim, int64_t{kValueTileFloats});
  const std::vector<SegmentRows> pieces = cut_segments(args.segment_ends);
  if (pieces.empty()) return;
  for (const ConstMatrixView& rows : {args.q, args.k, args.v}) stream.reads(rows);
  stream.writes(args.out);
  const SegmentAttentionPush push{.q = address_of(args.q),
                                  .k = address_of(args.k),
                                  .v = address_of(args.v),
                                  .result = address_of(args.out),
                                  .pieces = stream.upload(std::span<const SegmentRows>(pieces)),
                                  .q_stride = stride_of(args.q),
                                  .k_stride = stride_of(args.k),
                                  .v_stride = stride_of(args.v),
                                  .result_stride = stride_of(args.out),
                                  .num_pieces = static_cast<uint32_t>(pieces.size()),
                                  .scale = 1.0f / std::sqrt(static_cast<float>(head_dim))};
  const uint32_t tile_keys = std::min(kAttentionTile / 4, kValueTileFloats / static_cast<uint32_t>(head_dim));
  Grid grid = grid_of_rows(std::ssize(pieces));
  grid.z = static_cast<uint32_t>(args.num_heads);
  stream.dispatch(
      {find_shader("segment_attention", args.out.dtype), {4 * kAttentionTile, static_cast<uint32_t>(head_dim), tile_keys}},
      push, grid);
}

}  // namespace ferry::vulkan
