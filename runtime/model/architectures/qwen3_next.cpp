#include <nlohmann/json.hpp>

#include "runtime/model/architectures/common_keys.h"
#include "runtime/model/architectures/pages.h"

// Qwen3-Next: the layers of Qwen3.5-MoE with plain rotary positions; the projections of its gated delta layers are merged, rows
// by key head. Follows transformers 5.17.0, models/qwen3_next/modeling_qwen3_next.py.

namespace ferry {
namespace {

void read_qwen3_next(const ConfigFields& text, ModelConfig& config) {
  config.norm.is_offset = true;
  config.layers = read_layer_types(text, "linear_attention", Mixer::kGatedDelta);
  read_sparse_layers(text, config.layers);
  config.attention = read_attention(text, 256, 0.25);
  config.attention.has_gate = true;
  config.gated_delta = read_gated_delta(text);
  if (config.num_layers_of(Ffn::kMixtureOfExperts) > 0) {
    config.moe = read_experts(text);
    config.moe.shared_intermediate_dim = text.integer("shared_expert_intermediate_size", 1, kMaxDim);
    config.moe.router.is_normalised = text.boolean_or("norm_topk_prob", true);
  }
  if (config.num_layers_of(Ffn::kDense) > 0) config.dense.intermediate_dim = text.integer("intermediate_size", 1, kMaxDim);
}

}  // namespace

constinit const Architecture kQwen3Next{
    .model_type = "qwen3_next",
    .text_model_type = nullptr,
    .read = read_qwen3_next,
    .names = {.gated_delta = {.merged_qkvz = "linear_attn.in_proj_qkvz", .merged_ba = "linear_attn.in_proj_ba"}}};

}  // namespace ferry
