#pragma once

#include "kernels/op_limits.h"
#include "kernels/ops.h"
#include "kernels/vulkan/vulkan_stream.h"

// The ops of ops.h as dispatches on a stream. They return before anything has run.

namespace ferry::vulkan {

/// The most scratch of the stream that any op needs in a run of such limits.
int64_t op_scratch_bytes(const DeviceTraits& traits, const OpLimits& limits);
/// Of those that need any.
int64_t attention_scratch_bytes(const OpLimits& limits);
int64_t gated_delta_rule_scratch_bytes(const DeviceTraits& traits, const OpLimits& limits);
int64_t argmax_scratch_bytes(const OpLimits& limits);
int64_t expert_rows_scratch_bytes(const OpLimits& limits);

void embed(VulkanStream& stream, const EmbedArgs& args);
void rms_norm(VulkanStream& stream, const RmsNormArgs& args);
void add(VulkanStream& stream, const AddArgs& args);
void multiply(VulkanStream& stream, const MultiplyArgs& args);
void gated_rms_norm(VulkanStream& stream, const GatedRmsNormArgs& args);
void rope(VulkanStream& stream, const RopeArgs& args);
void kv_append(VulkanStream& stream, const KvAppendArgs& args);
void attention(VulkanStream& stream, const AttentionArgs& args);
void sigmoid_gate(VulkanStream& stream, const SigmoidGateArgs& args);
void causal_conv1d(VulkanStream& stream, const CausalConv1dArgs& args);
void delta_gates(VulkanStream& stream, const DeltaGatesArgs& args);
void gated_delta_rule(VulkanStream& stream, const GatedDeltaRuleArgs& args);
void gated_delta_mix(VulkanStream& stream, const GatedDeltaMixArgs& args);
bool takes_gated_delta_mix(const GatedDeltaMixArgs& args);
void router_topk(VulkanStream& stream, const RouterTopkArgs& args);
void argmax(VulkanStream& stream, const ArgmaxArgs& args);
void swiglu(VulkanStream& stream, const SwigluArgs& args);
void gather_rows(VulkanStream& stream, const GatherRowsArgs& args);
void expert_rows(VulkanStream& stream, const ExpertRowsArgs& args);
void choose_experts(VulkanStream& stream, const ExpertChoiceArgs& args);
bool takes_choose_experts(const ExpertChoiceArgs& args);
void combine(VulkanStream& stream, const CombineArgs& args);
void shared_expert_merge(VulkanStream& stream, const SharedExpertMergeArgs& args);
void quantize_rows(VulkanStream& stream, const QuantizeRowsArgs& args);
void residual_norm(VulkanStream& stream, const ResidualNormArgs& args);
bool takes_residual_norm(const ResidualNormArgs& args);
void layer_norm(VulkanStream& stream, const LayerNormArgs& args);
void add_bias(VulkanStream& stream, const AddBiasArgs& args);
void vision_rope(VulkanStream& stream, const VisionRopeArgs& args);
void segment_attention(VulkanStream& stream, const SegmentAttentionArgs& args);

}  // namespace ferry::vulkan
