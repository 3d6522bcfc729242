#include "tests/support/tiny_model.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "runtime/base/check.h"
#include "runtime/base/types.h"
#include "runtime/checkpoint/safetensors_writer.h"

namespace ferry::test {
namespace {

using nlohmann::json;
using Shape = std::vector<int64_t>;

/// FNV-1a: the same on every platform, unlike std::hash.
uint32_t seed_of(const std::string& name) {
  uint32_t hash = 2166136261U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

int64_t count_of(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

std::vector<float> normal_values(const std::string& name, int64_t count, float mean, float deviation) {
  std::mt19937 random(seed_of(name));
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

TinyTensor make_tensor(StoredType dtype, Shape shape, const std::vector<float>& values) {
  TinyTensor tensor{dtype, std::move(shape),
                    std::vector<std::byte>(values.size() * static_cast<std::size_t>(stored_type_bytes(dtype)))};
  for (std::size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<int64_t>(i), values[i]);
  return tensor;
}

/// Fills TinyModel::tensors.
class Builder {
 public:
  Builder(const TinyModelOptions& options, std::map<std::string, TinyTensor>& tensors) : o_(options), tensors_(tensors) {}

  void build() {
    matrix(o_.prefix + "embed_tokens.weight", "embed", {o_.vocab, o_.hidden}, 0.5F);
    if (!o_.tie_embeddings) matrix("lm_head.weight", "head", {o_.vocab, o_.hidden}, 0.5F);
    vector(o_.prefix + "norm.weight", "norm", {o_.hidden}, 0.0F, 0.15F);
    for (std::size_t i = 0; i < o_.layers.size(); ++i)
      build_layer(o_.prefix + "layers." + std::to_string(i) + ".", std::to_string(i), o_.layers[i]);
  }

 private:
  void build_layer(const std::string& name, const std::string& key, const std::string& kind) {
    vector(name + "input_layernorm.weight", key + "in", {o_.hidden}, 0.0F, 0.15F);
    vector(name + "post_attention_layernorm.weight", key + "post", {o_.hidden}, 0.0F, 0.15F);
    if (kind == "linear_attention") {
      build_deltanet(name + "linear_attn.", key);
    } else {
      build_attention(name + "self_attn.", key);
    }
    build_moe(name + "mlp.", key);
  }

  void build_deltanet(const std::string& name, const std::string& key) {
    const int64_t value_dim = o_.num_v_heads * o_.v_dim, channels = 2 * o_.num_k_heads * o_.k_dim + value_dim;
    matrix(name + "in_proj_qkv.weight", key + "qkv", {channels, o_.hidden});
    matrix(name + "in_proj_z.weight", key + "z", {value_dim, o_.hidden});
    matrix(name + "in_proj_b.weight", key + "b", {o_.num_v_heads, o_.hidden});
    matrix(name + "in_proj_a.weight", key + "a", {o_.num_v_heads, o_.hidden});
    matrix(name + "conv1d.weight", key + "conv", {channels, 1, o_.conv_kernel});
    vector(name + "A_log", key + "A_log", {o_.num_v_heads}, 0.7F, 0.7F);
    vector(name + "dt_bias", key + "dt_bias", {o_.num_v_heads}, 0.0F, 0.7F);
    vector(name + "norm.weight", key + "gated norm", {o_.v_dim}, 1.0F, 0.15F);
    matrix(name + "out_proj.weight", key + "out", {o_.hidden, value_dim});
  }

  void build_attention(const std::string& name, const std::string& key) {
    matrix(name + "q_proj.weight", key + "q", {2 * o_.num_heads * o_.head_dim, o_.hidden});
    matrix(name + "k_proj.weight", key + "k", {o_.num_kv_heads * o_.head_dim, o_.hidden});
    matrix(name + "v_proj.weight", key + "v", {o_.num_kv_heads * o_.head_dim, o_.hidden});
    vector(name + "q_norm.weight", key + "q norm", {o_.head_dim}, 0.0F, 0.15F);
    vector(name + "k_norm.weight", key + "k norm", {o_.head_dim}, 0.0F, 0.15F);
    matrix(name + "o_proj.weight", key + "o", {o_.hidden, o_.num_heads * o_.head_dim});
  }

  void build_moe(const std::string& name, const std::string& key) {
    matrix(name + "gate.weight", key + "router", {o_.num_experts, o_.hidden});
    matrix(name + "shared_expert.gate_proj.weight", key + "sg", {o_.shared_dim, o_.hidden});
    matrix(name + "shared_expert.up_proj.weight", key + "su", {o_.shared_dim, o_.hidden});
    matrix(name + "shared_expert.down_proj.weight", key + "sd", {o_.hidden, o_.shared_dim});
    matrix(name + "shared_expert_gate.weight", key + "sx", {1, o_.hidden});
    std::vector<float> gate_up, down;
    for (int64_t e = 0; e < o_.num_experts; ++e) {
      const std::string expert = key + " expert " + std::to_string(e);
      if (!o_.packed_experts) {
        const std::string prefix = name + "experts." + std::to_string(e);
        matrix(prefix + ".gate_proj.weight", expert + "g", {o_.expert_dim, o_.hidden});
        matrix(prefix + ".up_proj.weight", expert + "u", {o_.expert_dim, o_.hidden});
        matrix(prefix + ".down_proj.weight", expert + "d", {o_.hidden, o_.expert_dim});
        continue;
      }
      for (const char* part : {"g", "u"}) append(gate_up, matrix_values(expert + part, {o_.expert_dim, o_.hidden}));
      append(down, matrix_values(expert + "d", {o_.hidden, o_.expert_dim}));
    }
    if (!o_.packed_experts) return;
    tensors_[name + "experts.gate_up_proj"] = make_tensor(o_.dtype, {o_.num_experts, 2 * o_.expert_dim, o_.hidden}, gate_up);
    tensors_[name + "experts.down_proj"] = make_tensor(o_.dtype, {o_.num_experts, o_.hidden, o_.expert_dim}, down);
  }

  static void append(std::vector<float>& to, const std::vector<float>& from) { to.insert(to.end(), from.begin(), from.end()); }
  static std::vector<float> matrix_values(const std::string& key, const Shape& shape, float deviation = 0.0F) {
    if (deviation == 0.0F) deviation = 1.3F / std::sqrt(static_cast<float>(shape.back()));
    return normal_values(key, count_of(shape), 0.0F, deviation);
  }
  void matrix(const std::string& name, const std::string& key, const Shape& shape, float deviation = 0.0F) {
    tensors_[name] = make_tensor(o_.dtype, shape, matrix_values(key, shape, deviation));
  }
  void vector(const std::string& name, const std::string& key, const Shape& shape, float mean, float deviation) {
    tensors_[name] = make_tensor(o_.dtype, shape, normal_values(key, count_of(shape), mean, deviation));
  }

  const TinyModelOptions& o_;
  std::map<std::string, TinyTensor>& tensors_;
};

json make_config(const TinyModelOptions& o) {
  const int64_t frequencies = o.head_dim / 8;  // half of the rotary quarter
  const int64_t third = frequencies / 3;
  const json text = {{"model_type", "qwen3_5_moe_text"},
                     {"vocab_size", o.vocab},
                     {"hidden_size", o.hidden},
                     {"hidden_act", "silu"},
                     {"num_hidden_layers", o.layers.size()},
                     {"layer_types", o.layers},
                     {"max_position_embeddings", o.max_context},
                     {"rms_norm_eps", 1e-6},
                     {"attention_bias", false},
                     {"num_attention_heads", o.num_heads},
                     {"num_key_value_heads", o.num_kv_heads},
                     {"head_dim", o.head_dim},
                     {"rope_parameters",
                      {{"rope_type", "default"},
                       {"rope_theta", 1e7},
                       {"partial_rotary_factor", 0.25},
                       {"mrope_section", {frequencies - 2 * third, third, third}},
                       {"mrope_interleaved", true}}},
                     {"linear_num_key_heads", o.num_k_heads},
                     {"linear_num_value_heads", o.num_v_heads},
                     {"linear_key_head_dim", o.k_dim},
                     {"linear_value_head_dim", o.v_dim},
                     {"linear_conv_kernel_dim", o.conv_kernel},
                     {"num_experts", o.num_experts},
                     {"num_experts_per_tok", o.top_k},
                     {"moe_intermediate_size", o.expert_dim},
                     {"shared_expert_intermediate_size", o.shared_dim},
                     {"eos_token_id", 1}};
  return {{"model_type", "qwen3_5_moe"},
          {"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
          {"dtype", o.dtype == StoredType::kF32 ? "float32" : "bfloat16"},
          {"tie_word_embeddings", o.tie_embeddings},
          {"text_config", text}};
}

/// Writes `tensors` in `num_shards` files of about as many tensors each, with an index if there are several.
void write_shards(const std::filesystem::path& dir, const std::vector<TensorToWrite>& tensors, int num_shards) {
  if (num_shards == 1) return write_safetensors(dir / "model.safetensors", tensors);
  json weight_map = json::object();
  for (int shard = 0; shard < num_shards; ++shard) {
    const std::string file = "model-" + std::to_string(shard + 1) + "-of-" + std::to_string(num_shards) + ".safetensors";
    std::vector<TensorToWrite> part;
    for (std::size_t i = static_cast<std::size_t>(shard); i < tensors.size(); i += static_cast<std::size_t>(num_shards)) {
      part.push_back(tensors[i]);
      weight_map[tensors[i].name] = file;
    }
    write_safetensors(dir / file, part);
  }
  write_json(dir / "model.safetensors.index.json", {{"metadata", json::object()}, {"weight_map", weight_map}});
}

}  // namespace

void TinyTensor::set(int64_t i, float value) {
  FERRY_CHECK(dtype == StoredType::kF32 || dtype == StoredType::kBF16);
  const auto width = static_cast<std::size_t>(stored_type_bytes(dtype));
  std::byte* to = data.data() + static_cast<std::size_t>(i) * width;
  const bfloat16 rounded = to_bfloat16(value);
  std::memcpy(to, dtype == StoredType::kF32 ? static_cast<const void*>(&value) : &rounded, width);
}

TinyModel::TinyModel(const TinyModelOptions& options) : config(make_config(options)) { Builder(options, tensors).build(); }

void TinyModel::write(const std::filesystem::path& dir, int num_shards) const {
  write_json(dir / "config.json", config);
  if (!generation.is_null()) write_json(dir / "generation_config.json", generation);
  std::vector<TensorToWrite> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor.dtype, tensor.shape, tensor.data});
  write_shards(dir, list, num_shards);
}

void write_bf16_copy(const std::filesystem::path& from, const std::filesystem::path& to) {
  const Checkpoint checkpoint = Checkpoint::open(from);
  std::vector<std::vector<std::byte>> rounded;
  std::vector<TensorToWrite> list;
  for (const std::string_view name : checkpoint.names()) {
    const TensorInfo& tensor = *checkpoint.find(name);
    FERRY_CHECK(tensor.dtype == StoredType::kF32) << name;
    std::vector<float> values(static_cast<std::size_t>(tensor.bytes) / sizeof(float));
    std::memcpy(values.data(), tensor.data, values.size() * sizeof(float));
    rounded.push_back(make_tensor(StoredType::kBF16, tensor.shape, values).data);
    list.push_back({std::string(name), StoredType::kBF16, tensor.shape, rounded.back()});
  }
  write_safetensors(to / "model.safetensors", list);
  json config = json::parse(std::ifstream(from / "config.json"));
  config["dtype"] = "bfloat16";
  write_json(to / "config.json", config);
  std::filesystem::copy_file(from / "generation_config.json", to / "generation_config.json");
}

void write_json(const std::filesystem::path& path, const json& value) { std::ofstream(path) << value.dump(1); }

}  // namespace ferry::test
