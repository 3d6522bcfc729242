#include "runtime/model/config.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxIds = 1024;          // of one list, each compared with all others
constexpr int64_t kMaxDim = int64_t{1} << 24;  // far above any real width; keeps products of widths within int64

json read_json(const std::filesystem::path& path) {
  json value = read_json_file(path);
  if (!value.is_object()) throw_invalid(path.string() + " is not a JSON object");
  return value;
}

/// Typed access to one JSON object with errors that name the key.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  const json& at(const char* key) const {
    if (!has(key)) throw_invalid(where_ + ": missing key '" + key + "'");
    return object_[key];
  }
  int64_t integer(const char* key, int64_t min, int64_t max) const {
    const json& value = at(key);
    const int64_t number = value.is_number_integer() ? value.get<int64_t>() : std::numeric_limits<int64_t>::min();
    if (number < min || number > max) fail(key, "an integer from " + std::to_string(min) + " to " + std::to_string(max));
    return number;
  }
  int64_t integer_or(const char* key, int64_t fallback, int64_t min, int64_t max) const {
    return has(key) ? integer(key, min, max) : fallback;
  }
  double number(const char* key, double above, double max) const {
    const json& value = at(key);
    const double x = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(x > above && x <= max)) fail(key, "a number above " + std::to_string(above) + ", at most " + std::to_string(max));
    return x;
  }
  bool boolean_or(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!at(key).is_boolean()) fail(key, "true or false");
    return at(key).get<bool>();
  }
  /// Refuses every value but the allowed ones; an absent key is fine.
  void expect(const char* key, std::initializer_list<json> allowed) const {
    if (!has(key) || std::find(allowed.begin(), allowed.end(), at(key)) != allowed.end()) return;
    std::string list;
    for (const json& value : allowed) list += (list.empty() ? "" : " or ") + value.dump();
    fail(key, list);
  }
  [[noreturn]] void fail(const char* key, const std::string& allowed) const {
    throw_invalid(where_ + ": " + key + " is " + shown(object_[key]) + "; allowed: " + allowed);
  }

 private:
  const json& object_;
  std::string where_;
};

std::vector<LayerKind> read_layers(const Fields& text) {
  const int64_t num_layers = text.integer("num_hidden_layers", 1, 4096);
  std::vector<LayerKind> layers;
  if (!text.has("layer_types")) {
    const int64_t interval = text.integer_or("full_attention_interval", 4, 1, 4096);
    for (int64_t i = 0; i < num_layers; ++i) {
      layers.push_back((i + 1) % interval == 0 ? LayerKind::kFullAttention : LayerKind::kLinearAttention);
    }
    return layers;
  }
  const json& types = text.at("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != num_layers) {
    text.fail("layer_types", "a list of num_hidden_layers = " + std::to_string(num_layers) + " kinds");
  }
  for (const json& type : types) {
    if (type == "linear_attention") {
      layers.push_back(LayerKind::kLinearAttention);
    } else if (type == "full_attention") {
      layers.push_back(LayerKind::kFullAttention);
    } else {
      throw_invalid("config.json: layer_types has " + shown(type) + "; allowed: linear_attention, full_attention");
    }
  }
  return layers;
}

AttentionConfig read_attention(const Fields& text) {
  AttentionConfig a;
  a.num_heads = text.integer("num_attention_heads", 1, 65536);
  a.num_kv_heads = text.integer_or("num_key_value_heads", a.num_heads, 1, a.num_heads);
  a.head_dim = text.integer_or("head_dim", 256, 1, 65536);
  if (a.num_heads % a.num_kv_heads != 0) text.fail("num_key_value_heads", "a divisor of num_attention_heads");
  text.expect("attention_bias", {false});
  text.expect("attn_output_gate", {true});

  if (!text.at("rope_parameters").is_object()) text.fail("rope_parameters", "an object");
  const Fields rope(text.at("rope_parameters"), "config.json: rope_parameters");
  rope.expect("rope_type", {"default"});
  a.rope_theta = rope.number("rope_theta", 0.0, 1e30);
  const Fields& partial = rope.has("partial_rotary_factor") ? rope : text;
  const double factor = partial.has("partial_rotary_factor") ? partial.number("partial_rotary_factor", 0.0, 1.0) : 0.25;
  a.rotary_dim = static_cast<int64_t>(static_cast<double>(a.head_dim) * factor);
  if (a.rotary_dim < 2 || a.rotary_dim % 2 != 0) {
    throw_invalid("config.json: head_dim x partial_rotary_factor is " + std::to_string(a.rotary_dim) +
                  "; allowed: an even number, at least 2");
  }
  if (!rope.has("mrope_section")) return a;
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
  return a;
}

DeltaNetConfig read_deltanet(const Fields& text) {
  DeltaNetConfig d;
  d.num_k_heads = text.integer("linear_num_key_heads", 1, 65536);
  d.num_v_heads = text.integer("linear_num_value_heads", 1, 65536);
  d.k_dim = text.integer("linear_key_head_dim", 1, 65536);
  d.v_dim = text.integer("linear_value_head_dim", 1, 65536);
  d.conv_kernel = text.integer_or("linear_conv_kernel_dim", 4, 1, 64);
  if (d.num_v_heads % d.num_k_heads != 0) text.fail("linear_num_value_heads", "a multiple of linear_num_key_heads");
  text.expect("output_gate_type", {"swish", "silu"});
  return d;
}

MoeConfig read_moe(const Fields& text) {
  MoeConfig m;
  m.num_experts = text.integer("num_experts", 1, 65536);
  m.top_k = text.integer("num_experts_per_tok", 1, m.num_experts);
  m.intermediate_dim = text.integer("moe_intermediate_size", 1, kMaxDim);
  m.shared_intermediate_dim = text.integer("shared_expert_intermediate_size", 1, kMaxDim);
  text.expect("mlp_only_layers", {json::array()});
  text.expect("norm_topk_prob", {true});
  return m;
}

void append_ids(const Fields& from, const char* key, int64_t vocab_size, std::vector<TokenId>& ids) {
  if (!from.has(key)) return;
  const json& value = from.at(key);
  if (value.is_array() && value.size() > kMaxIds) from.fail(key, "at most " + std::to_string(kMaxIds) + " token ids");
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab_size) {
      from.fail(key, "token ids from 0 to " + std::to_string(vocab_size - 1));
    }
    const auto token = id.get<TokenId>();
    if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  }
}

/// Of a checkpoint that sees: what a prompt has around and in the place of a picture.
std::vector<NamedTokenId> read_placeholders(const Fields& top, int64_t vocab_size) {
  std::vector<NamedTokenId> placeholders;
  for (const char* key : {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"}) {
    std::vector<TokenId> ids;
    append_ids(top, key, vocab_size, ids);
    for (const TokenId id : ids) placeholders.push_back({.name = key, .id = id});
  }
  return placeholders;
}

DType read_dtype(const Fields& top, const Fields& text) {
  for (const Fields* fields : {&text, &top}) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (!fields->has(key)) continue;
      fields->expect(key, {"float32", "bfloat16"});
      return fields->at(key) == "float32" ? DType::kF32 : DType::kBF16;
    }
  }
  return DType::kBF16;
}

}  // namespace

int64_t ModelConfig::num_layers_of(LayerKind kind) const { return std::count(layers.begin(), layers.end(), kind); }

GenerationDefaults read_generation_config(const std::filesystem::path& path, int64_t vocab_size) {
  const json object = read_json(path);
  const Fields fields(object, "generation_config.json");
  GenerationDefaults g;
  append_ids(fields, "eos_token_id", vocab_size, g.stop_token_ids);
  g.do_sample = fields.boolean_or("do_sample", false);
  if (fields.has("temperature")) g.temperature = fields.number("temperature", -1e-9, 1e6);
  if (fields.has("top_p")) g.top_p = fields.number("top_p", 0.0, 1.0);
  if (fields.has("top_k")) g.top_k = fields.integer("top_k", 0, kMaxDim);
  return g;
}

ModelConfig load_config(const std::filesystem::path& checkpoint_dir) {
  if (!std::filesystem::is_directory(checkpoint_dir)) {
    throw Error(ErrorCode::kNotFound, "--model: '" + checkpoint_dir.string() + "' is not a checkpoint folder");
  }
  const json object = read_json(checkpoint_dir / "config.json");
  const Fields top(object, "config.json");
  top.expect("model_type", {"qwen3_5_moe", "qwen3_5_moe_text"});
  if (!top.has("model_type")) throw_invalid("config.json: missing key 'model_type'");
  if (top.has("quantization_config"))
    throw_invalid("config.json: quantization_config is not supported; allowed: float32 and bfloat16 checkpoints");
  if (top.has("text_config") && !top.at("text_config").is_object()) top.fail("text_config", "an object");
  const json& text_object = top.has("text_config") ? top.at("text_config") : object;
  const Fields text(text_object, "config.json");
  text.expect("model_type", {"qwen3_5_moe", "qwen3_5_moe_text"});
  text.expect("hidden_act", {"silu"});

  ModelConfig config;
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(checkpoint_dir);
  config.name = canonical.filename().string();
  if (top.has("architectures") && top.at("architectures").is_array() && !top.at("architectures").empty() &&
      top.at("architectures")[0].is_string()) {
    config.architecture = top.at("architectures")[0].get<std::string>();
  }
  config.dtype = read_dtype(top, text);
  config.vocab_size = text.integer("vocab_size", 1, kMaxDim);
  config.hidden_dim = text.integer("hidden_size", 1, kMaxDim);
  config.max_context = text.integer_or("max_position_embeddings", 32768, 1, int64_t{1} << 30);
  config.rms_norm_eps = text.has("rms_norm_eps") ? static_cast<float>(text.number("rms_norm_eps", 0.0, 1.0)) : 1e-6F;
  config.tie_word_embeddings = top.boolean_or("tie_word_embeddings", text.boolean_or("tie_word_embeddings", false));
  config.layers = read_layers(text);
  config.attention = read_attention(text);
  config.deltanet = read_deltanet(text);
  config.moe = read_moe(text);
  const std::filesystem::path generation = checkpoint_dir / "generation_config.json";
  if (std::filesystem::exists(generation)) config.generation = read_generation_config(generation, config.vocab_size);
  if (config.generation.stop_token_ids.empty())
    append_ids(text, "eos_token_id", config.vocab_size, config.generation.stop_token_ids);
  config.placeholders = read_placeholders(top, config.vocab_size);
  return config;
}

}  // namespace ferry
