#include "kernels/op_checks.h"
#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_norm.h"

namespace ferry::vulkan {
namespace {

/// A shader with the constants that norms share. `is_aligned` says so of all that they load.
template <class Push>
void run(VulkanStream& stream, const char* shader, bool is_aligned, const Push& push, MatrixView out) {
  const RowTeams teams = teams_for(stream, out);
  stream.dispatch({find_shader(shader, out.dtype), {kRowInvocations, is_aligned ? 1U : 0U, teams.are_subgroups, teams.packs}},
                  push, teams.grid);
}

/// Tells of what all norms read and write, and fills in what their push constants have in common.
template <class Push, class Args>
Push begin_norm(VulkanStream& stream, const Args& args) {
  check_same_shape(args.x, args.out);
  stream.reads(args.x);
  stream.reads(args.weight, args.x.cols);
  stream.writes(args.out);
  Push push{};
  push.x = address_of(args.x);
  push.weight = address_of(args.weight);
  push.result = address_of(args.out);
  push.x_stride = stride_of(args.x);
  push.result_stride = stride_of(args.out);
  push.rows = static_cast<uint32_t>(args.x.rows);
  push.cols = static_cast<uint32_t>(args.x.cols);
  push.eps = args.eps;
  return push;
}

}  // namespace

void rms_norm(VulkanStream& stream, const RmsNormArgs& args) {
  auto push = begin_norm<RmsNormPush>(stream, args);
  push.rounds_first = args.rounds_first ? 1U : 0U;
  run(stream, "rms_norm", are_aligned({args.x, args.out}) && is_aligned(push.weight), push, args.out);
}

void gated_rms_norm(VulkanStream& stream, const GatedRmsNormArgs& args) {
  auto push = begin_norm<GatedRmsNormPush>(stream, args);
  check_same_shape(args.gate, args.out);
  stream.reads(args.gate);
  push.gate = address_of(args.gate);
  push.gate_stride = stride_of(args.gate);
  push.rounds_weighted = args.weight_dtype == args.out.dtype ? 1U : 0U;
  run(stream, "gated_rms_norm", are_aligned({args.x, args.gate, args.out}) && is_aligned(push.weight), push, args.out);
}

void layer_norm(VulkanStream& stream, const LayerNormArgs& args) {
  auto push = begin_norm<LayerNormPush>(stream, args);
  stream.reads(args.bias, args.x.cols);
  push.bias = address_of(args.bias);
  run(stream, "layer_norm", are_aligned({args.x, args.out}) && is_aligned(push.weight) && is_aligned(push.bias), push,
      args.out);
}

}  // namespace ferry::vulkan
