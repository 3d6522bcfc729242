#include "tests/bench/slice_shapes.h"

#include <array>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr float kDeviation = 0.02F, kNormDeviation = 0.1F;

enum class Family : uint8_t { kQwen35, kQwenNext, kLfm2 };

/// Widths as released.
struct Widths {
  const char* name;
  Family family;
  int64_t hidden, vocab;
  int64_t heads, kv_heads, head_dim;
  int64_t key_heads, value_heads;  // of gated delta layers, each 128 wide
  int64_t experts, top_k, inner, shared;
  int64_t dense;  // width of the dense layers, which come first; all layers are where there are no experts
};

constexpr std::array kWidths{
    Widths{"35b", Family::kQwen35, 2048, 248320, 16, 2, 256, 16, 32, 256, 8, 512, 512, 0},
    Widths{"122b", Family::kQwen35, 3072, 248320, 32, 2, 256, 16, 64, 256, 8, 1024, 1024, 0},
    Widths{"397b", Family::kQwen35, 4096, 248320, 32, 2, 256, 16, 64, 512, 10, 1024, 1024, 0},
    Widths{"27b", Family::kQwen35, 5120, 248320, 24, 4, 256, 16, 48, 0, 0, 0, 0, 17408},
    Widths{"next-80b", Family::kQwenNext, 2048, 151936, 16, 2, 256, 16, 32, 512, 10, 512, 512, 0},
    Widths{"lfm2-8b", Family::kLfm2, 2048, 65536, 32, 8, 64, 0, 0, 32, 4, 1792, 0, 7168},
};
constexpr int64_t kDeltaDim = 128, kDeltaKernel = 4, kShortConvKernel = 3;
constexpr int64_t kNumDenseLayers = 1;  // of LFM2's two: a slice has few

using Tensors = std::vector<SliceTensor>;

bool is_attention(const Widths& w, int64_t layer) { return w.family == Family::kLfm2 ? layer % 4 == 2 : layer % 4 == 3; }

void add_qwen_attention(const Widths& w, const std::string& at, Tensors& to) {
  to.push_back({at + "self_attn.q_proj.weight", {2 * w.heads * w.head_dim, w.hidden}});
  to.push_back({at + "self_attn.k_proj.weight", {w.kv_heads * w.head_dim, w.hidden}});
  to.push_back({at + "self_attn.v_proj.weight", {w.kv_heads * w.head_dim, w.hidden}});
  to.push_back({at + "self_attn.o_proj.weight", {w.hidden, w.heads * w.head_dim}});
  to.push_back({at + "self_attn.q_norm.weight", {w.head_dim}, kNormDeviation});
  to.push_back({at + "self_attn.k_norm.weight", {w.head_dim}, kNormDeviation});
}

void add_gated_delta(const Widths& w, const std::string& at, Tensors& to) {
  const int64_t values = w.value_heads * kDeltaDim, channels = 2 * w.key_heads * kDeltaDim + values;
  if (w.family == Family::kQwenNext) {
    to.push_back({at + "linear_attn.in_proj_qkvz.weight", {channels + values, w.hidden}});
    to.push_back({at + "linear_attn.in_proj_ba.weight", {2 * w.value_heads, w.hidden}});
  } else {
    to.push_back({at + "linear_attn.in_proj_qkv.weight", {channels, w.hidden}});
    to.push_back({at + "linear_attn.in_proj_z.weight", {values, w.hidden}});
    to.push_back({at + "linear_attn.in_proj_b.weight", {w.value_heads, w.hidden}});
    to.push_back({at + "linear_attn.in_proj_a.weight", {w.value_heads, w.hidden}});
  }
  to.push_back({at + "linear_attn.conv1d.weight", {channels, 1, kDeltaKernel}, 0.4F});
  to.push_back({at + "linear_attn.dt_bias", {w.value_heads}, 0.5F});
  to.push_back({at + "linear_attn.A_log", {w.value_heads}, 0.5F, 1.0F});
  to.push_back({at + "linear_attn.norm.weight", {kDeltaDim}, kNormDeviation, 1.0F});
  to.push_back({at + "linear_attn.out_proj.weight", {w.hidden, values}});
}

void add_network(const std::string& at, const std::array<const char*, 3>& names, int64_t hidden, int64_t inner, Tensors& to) {
  to.push_back({at + names[0] + ".weight", {inner, hidden}});
  to.push_back({at + names[1] + ".weight", {inner, hidden}});
  to.push_back({at + names[2] + ".weight", {hidden, inner}});
}

void add_qwen_layer(const Widths& w, const std::string& at, bool has_attention, Tensors& to) {
  to.push_back({at + "input_layernorm.weight", {w.hidden}, kNormDeviation});
  to.push_back({at + "post_attention_layernorm.weight", {w.hidden}, kNormDeviation});
  if (has_attention) {
    add_qwen_attention(w, at, to);
  } else {
    add_gated_delta(w, at, to);
  }
  constexpr std::array kNames{"gate_proj", "up_proj", "down_proj"};
  if (w.experts == 0) return add_network(at + "mlp.", kNames, w.hidden, w.dense, to);
  to.push_back({at + "mlp.gate.weight", {w.experts, w.hidden}});
  to.push_back({at + "mlp.experts.gate_up_proj", {w.experts, 2 * w.inner, w.hidden}});
  to.push_back({at + "mlp.experts.down_proj", {w.experts, w.hidden, w.inner}});
  add_network(at + "mlp.shared_expert.", kNames, w.hidden, w.shared, to);
  to.push_back({at + "mlp.shared_expert_gate.weight", {1, w.hidden}});
}

SliceShard mtp_shard(const Widths& w) {
  SliceShard shard{.file = "mtp.safetensors", .seed = 3, .tensors = {{"mtp.fc.weight", {w.hidden, 2 * w.hidden}}}};
  for (const char* norm : {"mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight"})
    shard.tensors.push_back({norm, {w.hidden}, kNormDeviation});
  add_qwen_layer(w, "mtp.layers.0.", /*has_attention=*/true, shard.tensors);
  return shard;
}

void add_lfm2_layer(const Widths& w, const std::string& at, int64_t layer, Tensors& to) {
  to.push_back({at + "operator_norm.weight", {w.hidden}, kNormDeviation, 1.0F});
  to.push_back({at + "ffn_norm.weight", {w.hidden}, kNormDeviation, 1.0F});
  if (is_attention(w, layer)) {
    to.push_back({at + "self_attn.q_proj.weight", {w.heads * w.head_dim, w.hidden}});
    to.push_back({at + "self_attn.k_proj.weight", {w.kv_heads * w.head_dim, w.hidden}});
    to.push_back({at + "self_attn.v_proj.weight", {w.kv_heads * w.head_dim, w.hidden}});
    to.push_back({at + "self_attn.out_proj.weight", {w.hidden, w.heads * w.head_dim}});
    to.push_back({at + "self_attn.q_layernorm.weight", {w.head_dim}, kNormDeviation, 1.0F});
    to.push_back({at + "self_attn.k_layernorm.weight", {w.head_dim}, kNormDeviation, 1.0F});
  } else {
    to.push_back({at + "conv.in_proj.weight", {3 * w.hidden, w.hidden}});
    to.push_back({at + "conv.conv.weight", {w.hidden, 1, kShortConvKernel}, 0.4F});
    to.push_back({at + "conv.out_proj.weight", {w.hidden, w.hidden}});
  }
  constexpr std::array kNames{"w1", "w3", "w2"};
  if (layer < kNumDenseLayers) return add_network(at + "feed_forward.", kNames, w.hidden, w.dense, to);
  to.push_back({at + "feed_forward.gate.weight", {w.experts, w.hidden}});
  to.push_back({at + "feed_forward.expert_bias", {w.experts}, 0.01F});
  for (int64_t e = 0; e < w.experts; ++e)
    add_network(at + "feed_forward.experts." + std::to_string(e) + ".", kNames, w.hidden, w.inner, to);
}

ordered_json layer_types(const Widths& w, int64_t num_layers) {
  ordered_json types = ordered_json::array();
  for (int64_t l = 0; l < num_layers; ++l) {
    const char* other = w.family == Family::kLfm2 ? "conv" : "linear_attention";
    types.push_back(is_attention(w, l) ? "full_attention" : other);
  }
  return types;
}

/// What all families write alike.
ordered_json common_config(const Widths& w, int64_t num_layers) {
  ordered_json config{{"vocab_size", w.vocab},
                      {"hidden_size", w.hidden},
                      {"num_hidden_layers", num_layers},
                      {"num_attention_heads", w.heads},
                      {"num_key_value_heads", w.kv_heads},
                      {"layer_types", layer_types(w, num_layers)},
                      {"dtype", "bfloat16"}};
  if (w.experts > 0)
    config.update({{"moe_intermediate_size", w.inner}, {"num_experts", w.experts}, {"num_experts_per_tok", w.top_k}});
  if (w.dense > 0) config["intermediate_size"] = w.dense;
  return config;
}

ordered_json qwen_config(const Widths& w, int64_t num_layers) {
  const bool is_next = w.family == Family::kQwenNext;
  ordered_json text = common_config(w, num_layers);
  text.update({{"head_dim", w.head_dim},
               {"hidden_act", "silu"},
               {"max_position_embeddings", 262144},
               {"rms_norm_eps", 1e-6},
               {"attention_bias", false},
               {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e7}, {"partial_rotary_factor", 0.25}}},
               {"linear_conv_kernel_dim", kDeltaKernel},
               {"linear_key_head_dim", kDeltaDim},
               {"linear_value_head_dim", kDeltaDim},
               {"linear_num_key_heads", w.key_heads},
               {"linear_num_value_heads", w.value_heads}});
  if (w.shared > 0) text["shared_expert_intermediate_size"] = w.shared;
  if (is_next) {
    text.update({{"architectures", {"Qwen3NextForCausalLM"}},
                 {"model_type", "qwen3_next"},
                 {"norm_topk_prob", true},
                 {"decoder_sparse_step", 1},
                 {"tie_word_embeddings", false}});
    return text;
  }
  const bool is_dense = w.experts == 0;
  text["model_type"] = is_dense ? "qwen3_5_text" : "qwen3_5_moe_text";
  text["rope_parameters"].update({{"mrope_interleaved", true}, {"mrope_section", {11, 11, 10}}});
  return {{"architectures", {is_dense ? "Qwen3_5ForCausalLM" : "Qwen3_5MoeForCausalLM"}},
          {"model_type", is_dense ? "qwen3_5" : "qwen3_5_moe"},
          {"dtype", "bfloat16"},
          {"tie_word_embeddings", false},
          {"text_config", text}};
}

ordered_json lfm2_config(const Widths& w, int64_t num_layers) {
  ordered_json config = common_config(w, num_layers);
  config.update({{"architectures", {"Lfm2MoeForCausalLM"}},
                 {"model_type", "lfm2_moe"},
                 {"num_dense_layers", kNumDenseLayers},
                 {"conv_L_cache", kShortConvKernel},
                 {"conv_bias", false},
                 {"norm_eps", 1e-5},
                 {"max_position_embeddings", 128000},
                 {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
                 {"use_expert_bias", true},
                 {"norm_topk_prob", true},
                 {"routed_scaling_factor", 1.0},
                 {"tie_word_embeddings", true}});
  return config;
}

}  // namespace

std::vector<std::string> slice_names() {
  std::vector<std::string> names;
  for (const Widths& w : kWidths) names.emplace_back(w.name);
  return names;
}

ModelSlice make_slice(const std::string& name, int64_t num_layers, MtpPart mtp, int64_t vocab) {
  const Widths* found = nullptr;
  for (const Widths& w : kWidths)
    if (name == w.name) found = &w;
  FERRY_CHECK(found != nullptr) << name;
  Widths w = *found;
  if (vocab > 0) w.vocab = vocab;
  const bool is_lfm2 = w.family == Family::kLfm2;
  const std::string prefix = w.family == Family::kQwen35 ? "model.language_model." : "model.";
  ModelSlice slice{.config = is_lfm2 ? lfm2_config(w, num_layers) : qwen_config(w, num_layers), .shards = {}};
  slice.shards.push_back(
      {"embedding.safetensors",
       1,
       {{prefix + "embed_tokens.weight", {w.vocab, w.hidden}},
        {prefix + (is_lfm2 ? "embedding_norm.weight" : "norm.weight"), {w.hidden}, kNormDeviation, is_lfm2 ? 1.0F : 0.0F}}});
  if (!is_lfm2) slice.shards.push_back({"lm_head.safetensors", 2, {{"lm_head.weight", {w.vocab, w.hidden}}}});
  for (int64_t l = 0; l < num_layers; ++l) {
    SliceShard shard{
        .file = "layer" + std::to_string(l) + ".safetensors", .seed = 100 + static_cast<uint64_t>(l), .tensors = {}};
    const std::string at = prefix + "layers." + std::to_string(l) + ".";
    if (is_lfm2) {
      add_lfm2_layer(w, at, l, shard.tensors);
    } else {
      add_qwen_layer(w, at, is_attention(w, l), shard.tensors);
    }
    slice.shards.push_back(std::move(shard));
  }
  if (mtp == MtpPart::kNone) return slice;
  if (is_lfm2) throw_invalid("a slice of " + name + " with an MTP layer; its family has none");
  (w.family == Family::kQwen35 ? slice.config["text_config"] : slice.config)["mtp_num_hidden_layers"] = 1;
  slice.shards.push_back(mtp_shard(w));
  return slice;
}

}  // namespace ferry
