#include "kernels/op_table.h"

#include "kernels/ref/ref_ops.h"

namespace ferry::ref {

const OpTable kOpTable = {
    .name = "ref",
    .embed = embed,
    .rms_norm = rms_norm,
    .add = add,
    .multiply = multiply,
    .gated_rms_norm = gated_rms_norm,
    .rope = rope,
    .kv_append = kv_append,
    .attention = attention,
    .sigmoid_gate = sigmoid_gate,
    .causal_conv1d = causal_conv1d,
    .delta_gates = delta_gates,
    .gated_delta_rule = gated_delta_rule,
    .router_topk = router_topk,
    .swiglu = swiglu,
    .gather_rows = gather_rows,
    .combine = combine,
    .shared_expert_merge = shared_expert_merge,
    .quantize_rows = quantize_rows,
    .layer_norm = layer_norm,
    .add_bias = add_bias,
    .vision_rope = vision_rope,
    .segment_attention = segment_attention,
};

}  // namespace ferry::ref
