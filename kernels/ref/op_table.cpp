#include "kernels/op_table.h"

#include "kernels/ref/ref_ops.h"

namespace ferry::ref {

const OpTable kOpTable = {
    .name = "ref",
    .embed = on_pool<embed>,
    .rms_norm = on_pool<rms_norm>,
    .add = on_pool<add>,
    .multiply = on_pool<multiply>,
    .gated_rms_norm = on_pool<gated_rms_norm>,
    .rope = on_pool<rope>,
    .kv_append = on_pool<kv_append>,
    .attention = on_pool<attention>,
    .sigmoid_gate = on_pool<sigmoid_gate>,
    .causal_conv1d = on_pool<causal_conv1d>,
    .delta_gates = on_pool<delta_gates>,
    .gated_delta_rule = on_pool<gated_delta_rule>,
    .router_topk = on_pool<router_topk>,
    .argmax = on_pool<argmax>,
    .swiglu = on_pool<swiglu>,
    .gather_rows = on_pool<gather_rows>,
    .expert_rows = on_pool<expert_rows>,
    .combine = on_pool<combine>,
    .shared_expert_merge = on_pool<shared_expert_merge>,
    .quantize_rows = on_pool<quantize_rows>,
    .layer_norm = on_pool<layer_norm>,
    .add_bias = on_pool<add_bias>,
    .vision_rope = on_pool<vision_rope>,
    .segment_attention = on_pool<segment_attention>,
};

}  // namespace ferry::ref
