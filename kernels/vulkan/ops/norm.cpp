#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/shapes.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_norm.h"

namespace ferry::vulkan {
namespace {

/// A shader with the constants that norms share. `is_aligned` says so of all that they load.
template <class Push>
void run(VulkanStream& stream, const char* shader, bool is_aligned, const Push& push, MatrixView out) {
  const RowTeams teams = teams_for(stream, out);
  stream.dispatch({find_shader(shader, out.dtype), {kRowInvocations, is_aligned ? 1U : 0U, teams.are_subgroups}}, push,
                  teams.grid);
}

}  // namespace

void rms_norm(VulkanStream& stream, const RmsNormArgs& args) {
  check_same_shape(args.x, args.out);
  stream.reads(args.x);
  stream.reads(args.weight, args.x.cols);
  stream.writes(args.out);
  const RmsNormPush push{.x = address_of(args.x),
                         .weight = address_of(args.weight),
                         .result = address_of(args.out),
                         .x_stride = stride_of(args.x),
                         .result_stride = stride_of(args.out),
                         .rows = static_cast<uint32_t>(args.x.rows),
                         .cols = static_cast<uint32_t>(args.x.cols),
                         .eps = args.eps,
                         .rounds_first = args.rounds_first ? 1U : 0U};
  run(stream, "rms_norm", are_aligned({args.x, args.out}) && is_aligned(push.weight), push, args.out);
}

void residual_norm(VulkanStream& stream, const ResidualNormArgs& args) {
  const RmsNormArgs& norm = args.norm;
  const QuantizeRowsArgs& codes = args.codes;
  const bool has_added = args.added.data != nullptr, has_codes = codes.codes.data != nullptr;
  check_same_shape(args.residual, norm.out);
  FERRY_CHECK(norm.x.data == args.residual.data);
  stream.reads(args.residual);
  stream.reads(norm.weight, norm.x.cols);
  stream.writes(norm.out);
  bool is_x_aligned = are_aligned({args.residual, norm.out}) && is_aligned(address_of(norm.weight));
  if (has_added) {
    check_same_shape(args.added, args.residual);
    stream.reads(args.added);
    stream.writes(args.residual);
    is_x_aligned = is_x_aligned && is_aligned(args.added);
  }
  if (has_codes) {
    FERRY_CHECK(codes.x.data == norm.out.data);
    stream.writes(codes.codes);
    stream.writes(codes.scales, codes.x.rows);
    is_x_aligned = is_x_aligned && is_aligned(codes.codes);
  }
  const ResidualNormPush push{.residual = address_of(args.residual),
                              .added = address_of(args.added),
                              .weight = address_of(norm.weight),
                              .result = address_of(norm.out),
                              .codes = address_of(codes.codes),
                              .scales = address_of(codes.scales),
                              .residual_stride = stride_of(args.residual),
                              .added_stride = stride_of(args.added),
                              .result_stride = stride_of(norm.out),
                              .codes_stride = stride_of(codes.codes),
                              .rows = static_cast<uint32_t>(norm.x.rows),
                              .cols = static_cast<uint32_t>(norm.x.cols),
                              .codes_cols = static_cast<uint32_t>(codes.codes.cols),
                              .eps = norm.eps,
                              .rounds_first = norm.rounds_first ? 1U : 0U};
  run(stream, "residual_norm", is_x_aligned, push, norm.out);
}

void gated_rms_norm(VulkanStream& stream, const GatedRmsNormArgs& args) {
  check_same_shape(args.x, args.out);
  check_same_shape(args.gate, args.out);
  stream.reads(args.x);
  stream.reads(args.gate);
  stream.reads(args.weight, args.x.cols);
  stream.writes(args.out);
  const GatedRmsNormPush push{.x = address_of(args.x),
                              .gate = address_of(args.gate),
                              .weight = address_of(args.weight),
                              .result = address_of(args.out),
                              .x_stride = stride_of(args.x),
                              .gate_stride = stride_of(args.gate),
                              .result_stride = stride_of(args.out),
                              .rows = static_cast<uint32_t>(args.x.rows),
                              .cols = static_cast<uint32_t>(args.x.cols),
                              .eps = args.eps,
                              .rounds_weighted = args.weight_dtype == args.out.dtype ? 1U : 0U};
  run(stream, "gated_rms_norm", are_aligned({args.x, args.gate, args.out}) && is_aligned(push.weight), push, args.out);
}

void layer_norm(VulkanStream& stream, const LayerNormArgs& args) {
  check_same_shape(args.x, args.out);
  stream.reads(args.x);
  stream.reads(args.weight, args.x.cols);
  stream.reads(args.bias, args.x.cols);
  stream.writes(args.out);
  const LayerNormPush push{.x = address_of(args.x),
                           .weight = address_of(args.weight),
                           .bias = address_of(args.bias),
                           .result = address_of(args.out),
                           .x_stride = stride_of(args.x),
                           .result_stride = stride_of(args.out),
                           .rows = static_cast<uint32_t>(args.x.rows),
                           .cols = static_cast<uint32_t>(args.x.cols),
                           .eps = args.eps};
  run(stream, "layer_norm", are_aligned({args.x, args.out}) && is_aligned(push.weight) && is_aligned(push.bias), push,
      args.out);
}

}  // namespace ferry::vulkan
