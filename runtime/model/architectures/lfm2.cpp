#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/model/architectures/common_keys.h"
#include "runtime/model/architectures/pages.h"

// LFM2 and LFM2-MoE: gated short convolutions and attention without a gate. The mixture's router is a sigmoid whose choice, but
// not whose weights, an expert's bias moves; its first layers are dense. Follows transformers 5.17.0, models/lfm2 and
// models/lfm2_moe. Embeddings are tied unless the file says otherwise.

namespace ferry {
namespace {

/// Which layers are attention: layer_types, or full_attn_idxs in older files.
std::vector<LayerPlan> read_mixers(const ConfigFields& text) {
  if (text.has("layer_types")) return read_layer_types(text, "conv", Mixer::kShortConv);
  const int64_t num_layers = read_num_layers(text);
  std::vector<LayerPlan> layers(static_cast<std::size_t>(num_layers), {.mixer = Mixer::kShortConv});
  if (!text.has("full_attn_idxs"))
    text.fail("layer_types", "a list of conv and full_attention, or full_attn_idxs in its place");
  for (const int64_t i : text.integers("full_attn_idxs", num_layers - 1, layers.size()))
    layers[static_cast<std::size_t>(i)].mixer = Mixer::kAttention;
  return layers;
}

/// intermediate_size (block_ff_dim in older files), of which block_auto_adjust_ff_dim makes two thirds, times a factor, rounded
/// up to a multiple.
int64_t read_dense_dim(const ConfigFields& text) {
  int64_t dim = text.integer(text.has("intermediate_size") ? "intermediate_size" : "block_ff_dim", 1, kMaxDim);
  if (!text.boolean_or("block_auto_adjust_ff_dim", false)) return dim;
  dim = 2 * dim / 3;
  if (text.has("block_ffn_dim_multiplier"))
    dim = static_cast<int64_t>(text.number("block_ffn_dim_multiplier", 0.0, 64.0) * static_cast<double>(dim));
  const int64_t multiple = text.integer_or("block_multiple_of", 256, 1, kMaxDim);
  return std::max<int64_t>(1, (dim + multiple - 1) / multiple) * multiple;
}

void read_common(const ConfigFields& text, ModelConfig& config) {
  config.norm = {.eps = text.has("norm_eps") ? static_cast<float>(text.number("norm_eps", 0.0, 1.0)) : 1e-5F,
                 .rounds_first = true};
  config.tie_word_embeddings = text.boolean_or("tie_word_embeddings", text.boolean_or("tie_embedding", true));
  config.layers = read_mixers(text);
  config.attention = read_attention(text, config.hidden_dim / text.integer("num_attention_heads", 1, config.hidden_dim), 1.0);
  text.expect("conv_bias", {false});
  config.short_conv = {.channels = config.hidden_dim, .conv_kernel = text.integer_or("conv_L_cache", 3, 1, 64)};
}

void read_lfm2(const ConfigFields& text, ModelConfig& config) {
  read_common(text, config);
  config.dense.intermediate_dim = read_dense_dim(text);
}

void read_lfm2_moe(const ConfigFields& text, ModelConfig& config) {
  read_common(text, config);
  const auto num_layers = static_cast<int64_t>(config.layers.size());
  const int64_t num_dense = text.integer_or("num_dense_layers", 0, 0, num_layers);
  for (int64_t i = num_dense; i < num_layers; ++i) config.layers[static_cast<std::size_t>(i)].ffn = Ffn::kMixtureOfExperts;
  if (num_dense > 0) config.dense.intermediate_dim = text.integer("intermediate_size", 1, kMaxDim);
  if (num_dense == num_layers) return;
  config.moe = read_experts(text);
  config.moe.router = {
      .score = RouterScore::kSigmoid,
      .has_bias = text.boolean_or("use_expert_bias", true),
      .is_normalised = text.boolean_or("norm_topk_prob", true),
      .sum_eps = 1e-6F,
      .scale = text.has("routed_scaling_factor") ? static_cast<float>(text.number("routed_scaling_factor", 0.0, 1e6)) : 1.0F};
}

constexpr TensorNames::Ffn kNetwork{"w1", "w3", "w2"};

constexpr TensorNames kNames{
    .final_norm = "embedding_norm",
    .mixer_norm = "operator_norm",
    .ffn_norm = "ffn_norm",
    .attention = {.o_proj = "self_attn.out_proj", .q_norm = "self_attn.q_layernorm", .k_norm = "self_attn.k_layernorm"},
    .dense = {"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"},
    .moe = {.router = "feed_forward.gate",
            .bias = "feed_forward.expert_bias",
            .experts = "feed_forward.experts.",
            .expert = kNetwork}};

}  // namespace

constinit const Architecture kLfm2{.model_type = "lfm2", .text_model_type = nullptr, .read = read_lfm2, .names = kNames};
constinit const Architecture kLfm2Moe{
    .model_type = "lfm2_moe", .text_model_type = nullptr, .read = read_lfm2_moe, .names = kNames};

}  // namespace ferry
