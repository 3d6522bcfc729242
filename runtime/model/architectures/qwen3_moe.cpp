#include <nlohmann/json.hpp>

#include "runtime/model/architectures/common_keys.h"
#include "runtime/model/architectures/pages.h"

// Qwen3-MoE: attention without a gate, fully rotated, in every layer; experts without a shared one; dense layers where
// mlp_only_layers and decoder_sparse_step say so. Follows transformers 5.17.0, models/qwen3_moe/modeling_qwen3_moe.py.

namespace ferry {
namespace {

void read_qwen3_moe(const ConfigFields& text, ModelConfig& config) {
  config.norm.rounds_first = true;
  config.layers.assign(static_cast<std::size_t>(read_num_layers(text)), {.mixer = Mixer::kAttention});
  read_sparse_layers(text, config.layers);
  config.attention = read_attention(text, 128, 1.0);
  if (config.num_layers_of(Ffn::kMixtureOfExperts) > 0) {
    config.moe = read_experts(text);
    config.moe.router.is_normalised = text.boolean_or("norm_topk_prob", false);
  }
  if (config.num_layers_of(Ffn::kDense) > 0) config.dense.intermediate_dim = text.integer("intermediate_size", 1, kMaxDim);
}

}  // namespace

constinit const Architecture kQwen3Moe{
    .model_type = "qwen3_moe", .text_model_type = nullptr, .read = read_qwen3_moe, .names = {}};

}  // namespace ferry
