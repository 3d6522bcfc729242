#include <nlohmann/json.hpp>

#include "runtime/model/architectures/common_keys.h"
#include "runtime/model/architectures/pages.h"

// Qwen3.5-MoE, text part: gated DeltaNet and gated attention, a mixture of experts with a shared one in every layer. Follows
// transformers 5.17.0, models/qwen3_5_moe/modeling_qwen3_5_moe.py. Checkpoints are nested (text_config, tensors below
// model.language_model.) or of the text part alone; experts packed per layer, as released, or one by one.

namespace ferry {
namespace {

void read_qwen3_5_moe(const ConfigFields& text, ModelConfig& config) {
  config.norm.is_offset = true;
  config.layers = read_layer_types(text, "linear_attention", Mixer::kGatedDelta);
  for (LayerPlan& layer : config.layers) layer.ffn = Ffn::kMixtureOfExperts;
  config.attention = read_attention(text, 256, 0.25);
  text.expect("attn_output_gate", {true});
  config.attention.has_gate = true;
  config.gated_delta = read_gated_delta(text);
  config.moe = read_experts(text);
  config.moe.shared_intermediate_dim = text.integer("shared_expert_intermediate_size", 1, kMaxDim);
  text.expect("mlp_only_layers", {nlohmann::json::array()});
  text.expect("norm_topk_prob", {true});
}

}  // namespace

constinit const Architecture kQwen35Moe{
    .model_type = "qwen3_5_moe", .text_model_type = "qwen3_5_moe_text", .read = read_qwen3_5_moe, .names = {}};

}  // namespace ferry
