#include "runtime/model/architectures/common_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr int64_t kMaxLayers = 4096;

void read_mrope_section(const ConfigFields& rope, AttentionPlan& a) {
  if (!rope.has("mrope_section")) return;
  const json& section = rope.at("mrope_section");
  const bool three = section.is_array() && section.size() == 3 &&
                     std::all_of(section.begin(), section.end(), [](const json& n) { return n.is_number_unsigned(); });
  if (!three) rope.fail("mrope_section", "three counts");
  for (std::size_t i = 0; i < 3; ++i) {
    a.mrope_section[i] = static_cast<int64_t>(std::min(section[i].get<uint64_t>(), static_cast<uint64_t>(kMaxDim)));
  }
  if (a.mrope_section[0] + a.mrope_section[1] + a.mrope_section[2] != a.rotary_dim / 2) {
    rope.fail("mrope_section", "three counts with the sum " + std::to_string(a.rotary_dim / 2) + " (half of the rotary width)");
  }
}

void read_rope(const ConfigFields& text, double default_share, AttentionPlan& a) {
  text.expect("rope_scaling", {nullptr});
  const bool is_flat = !text.has("rope_parameters") && text.has("rope_theta");
  const ConfigFields rope = is_flat ? text : text.object("rope_parameters");
  rope.expect("rope_type", {"default"});
  a.rope_theta = rope.number("rope_theta", 0.0, 1e30);
  const ConfigFields& partial = rope.has("partial_rotary_factor") ? rope : text;
  const double share = partial.has("partial_rotary_factor") ? partial.number("partial_rotary_factor", 0.0, 1.0) : default_share;
  a.rotary_dim = static_cast<int64_t>(static_cast<double>(a.head_dim) * share);
  if (a.rotary_dim < 2 || a.rotary_dim % 2 != 0) {
    throw_invalid("config.json: head_dim x partial_rotary_factor is " + std::to_string(a.rotary_dim) +
                  "; allowed: an even number, at least 2");
  }
  read_mrope_section(rope, a);
}

}  // namespace

AttentionPlan read_attention(const ConfigFields& text, int64_t default_head_dim, double default_rotary_share) {
  AttentionPlan a;
  a.num_heads = text.integer("num_attention_heads", 1, 65536);
  a.num_kv_heads = text.integer_or("num_key_value_heads", a.num_heads, 1, a.num_heads);
  a.head_dim = text.integer_or("head_dim", default_head_dim, 1, 65536);
  if (a.num_heads % a.num_kv_heads != 0) text.fail("num_key_value_heads", "a divisor of num_attention_heads");
  text.expect("attention_bias", {false});
  text.expect("use_sliding_window", {false});
  read_rope(text, default_rotary_share, a);
  return a;
}

GatedDeltaPlan read_gated_delta(const ConfigFields& text) {
  GatedDeltaPlan d;
  d.num_k_heads = text.integer("linear_num_key_heads", 1, 65536);
  d.num_v_heads = text.integer("linear_num_value_heads", 1, 65536);
  d.k_dim = text.integer("linear_key_head_dim", 1, 65536);
  d.v_dim = text.integer("linear_value_head_dim", 1, 65536);
  d.conv_kernel = text.integer_or("linear_conv_kernel_dim", 4, 1, 64);
  if (d.num_v_heads % d.num_k_heads != 0) text.fail("linear_num_value_heads", "a multiple of linear_num_key_heads");
  text.expect("output_gate_type", {"swish", "silu"});
  return d;
}

MoePlan read_experts(const ConfigFields& text) {
  MoePlan m;
  const char* const key = !text.has("num_experts") && text.has("num_local_experts") ? "num_local_experts" : "num_experts";
  m.num_experts = text.integer(key, 1, 65536);
  m.top_k = text.integer("num_experts_per_tok", 1, m.num_experts);
  m.intermediate_dim = text.integer("moe_intermediate_size", 1, kMaxDim);
  return m;
}

int64_t read_num_layers(const ConfigFields& text) { return text.integer("num_hidden_layers", 1, kMaxLayers); }

std::vector<LayerPlan> read_layer_types(const ConfigFields& text, const char* other_name, Mixer other) {
  const int64_t num_layers = read_num_layers(text);
  std::vector<LayerPlan> layers(static_cast<std::size_t>(num_layers));
  if (!text.has("layer_types")) {
    const int64_t interval = text.integer_or("full_attention_interval", 4, 1, kMaxLayers);
    for (int64_t i = 0; i < num_layers; ++i)
      layers[static_cast<std::size_t>(i)].mixer = (i + 1) % interval == 0 ? Mixer::kAttention : other;
    return layers;
  }
  const json& types = text.at("layer_types");
  if (!types.is_array() || types.size() != layers.size())
    text.fail("layer_types", "a list of num_hidden_layers = " + std::to_string(num_layers) + " kinds");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (types[i] != other_name && types[i] != "full_attention") {
      throw_invalid(text.where() + ": layer_types has " + shown(types[i]) + "; allowed: " + other_name + ", full_attention");
    }
    layers[i].mixer = types[i] == "full_attention" ? Mixer::kAttention : other;
  }
  return layers;
}

void read_sparse_layers(const ConfigFields& text, std::vector<LayerPlan>& layers) {
  const auto num_layers = static_cast<int64_t>(layers.size());
  const int64_t step = text.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
  const std::vector<int64_t> dense = text.integers("mlp_only_layers", num_layers - 1, layers.size());
  for (int64_t i = 0; i < num_layers; ++i) {
    const bool is_dense = (i + 1) % step != 0 || std::find(dense.begin(), dense.end(), i) != dense.end();
    layers[static_cast<std::size_t>(i)].ffn = is_dense ? Ffn::kDense : Ffn::kMixtureOfExperts;
  }
}

}  // namespace ferry
