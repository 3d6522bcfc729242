#pragma once

#include <cstdint>

#include "kernels/op_checks.h"
#include "kernels/ops.h"
#include "runtime/base/thread_pool.h"

// The oracle: each op written as its formula reads, one element at a time, on the calling thread. The pool is accepted because
// the op table asks for it and is never used. kernels/ops.h says what each op computes.

namespace ferry::ref {

void embed(ThreadPool& pool, const EmbedArgs& args);
void rms_norm(ThreadPool& pool, const RmsNormArgs& args);
void add(ThreadPool& pool, const AddArgs& args);
void multiply(ThreadPool& pool, const MultiplyArgs& args);
void gated_rms_norm(ThreadPool& pool, const GatedRmsNormArgs& args);
void rope(ThreadPool& pool, const RopeArgs& args);
void kv_append(ThreadPool& pool, const KvAppendArgs& args);
void attention(ThreadPool& pool, const AttentionArgs& args);
void sigmoid_gate(ThreadPool& pool, const SigmoidGateArgs& args);
void causal_conv1d(ThreadPool& pool, const CausalConv1dArgs& args);
void delta_gates(ThreadPool& pool, const DeltaGatesArgs& args);
void gated_delta_rule(ThreadPool& pool, const GatedDeltaRuleArgs& args);
void router_topk(ThreadPool& pool, const RouterTopkArgs& args);
void argmax(ThreadPool& pool, const ArgmaxArgs& args);
void swiglu(ThreadPool& pool, const SwigluArgs& args);
void gather_rows(ThreadPool& pool, const GatherRowsArgs& args);
void expert_rows(ThreadPool& pool, const ExpertRowsArgs& args);
void combine(ThreadPool& pool, const CombineArgs& args);
void shared_expert_merge(ThreadPool& pool, const SharedExpertMergeArgs& args);
void quantize_rows(ThreadPool& pool, const QuantizeRowsArgs& args);
void layer_norm(ThreadPool& pool, const LayerNormArgs& args);
void add_bias(ThreadPool& pool, const AddBiasArgs& args);
void vision_rope(ThreadPool& pool, const VisionRopeArgs& args);
void segment_attention(ThreadPool& pool, const SegmentAttentionArgs& args);

/// 1 / (1 + e^-x)
float sigmoid(float x);
/// x / (1 + e^-x)
float silu(float x);

/// What add_bias() and products do behind a bias.
float activate(BiasActivation activation, float y);

}  // namespace ferry::ref
