#include "kernels/vulkan/op_table.h"

#include "kernels/vulkan/ops/vulkan_ops.h"

namespace ferry::vulkan {
namespace {

template <auto kRun>
struct OnDevice;
template <class Args, void (*kRun)(VulkanStream&, const Args&)>
struct OnDevice<kRun> {
  static void run(Stream& stream, const Args& args) { kRun(static_cast<VulkanStream&>(stream), args); }
};
template <auto kRun>
constexpr auto on_device = &OnDevice<kRun>::run;

}  // namespace

const OpTable kOpTable{
    .name = "vulkan",
    .embed = on_device<embed>,
    .rms_norm = on_device<rms_norm>,
    .add = on_device<add>,
    .multiply = on_device<multiply>,
    .gated_rms_norm = on_device<gated_rms_norm>,
    .rope = on_device<rope>,
    .kv_append = on_device<kv_append>,
    .attention = on_device<attention>,
    .sigmoid_gate = on_device<sigmoid_gate>,
    .causal_conv1d = on_device<causal_conv1d>,
    .delta_gates = on_device<delta_gates>,
    .gated_delta_rule = on_device<gated_delta_rule>,
    .gated_delta_mix = {on_device<gated_delta_mix>, takes_gated_delta_mix},
    .router_topk = on_device<router_topk>,
    .argmax = on_device<argmax>,
    .swiglu = on_device<swiglu>,
    .gather_rows = on_device<gather_rows>,
    .expert_rows = on_device<expert_rows>,
    .choose_experts = {on_device<choose_experts>, takes_choose_experts},
    .combine = on_device<combine>,
    .shared_expert_merge = on_device<shared_expert_merge>,
    .quantize_rows = on_device<quantize_rows>,
    .residual_norm = {on_device<residual_norm>, takes_residual_norm},
    .layer_norm = on_device<layer_norm>,
    .add_bias = on_device<add_bias>,
    .vision_rope = on_device<vision_rope>,
    .segment_attention = on_device<segment_attention>,
};

}  // namespace ferry::vulkan
