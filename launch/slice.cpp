#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/tensor.h"
#include "profiler/write_file.h"
#include "runtime/base/error.h"
#include "runtime/base/thread_pool.h"
#include "runtime/checkpoint/safetensors_writer.h"

// ferry_slice: a checkpoint with the layer shapes and the vocabulary of Qwen3.5-35B-A3B but few layers and random weights, to
// measure on: what a token costs depends on shapes alone.

namespace ferry {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kHidden = 2048, kVocab = 248320;
constexpr int64_t kHeads = 16, kKvHeads = 2, kHeadDim = 256;
constexpr int64_t kKeyHeads = 16, kValueHeads = 32, kDeltaDim = 128, kConvKernel = 4;
constexpr int64_t kExperts = 256, kTopK = 8, kInner = 512;
constexpr int64_t kFullAttentionInterval = 4;  // every fourth layer

/// A well-mixed word for a counter (splitmix64, Steele, Lea and Flood 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Nearly normal: the sum of four uniform numbers, scaled to variance 1.
float draw(uint64_t counter) {
  const uint64_t bits = mix(counter);
  int sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<int>((bits >> (16 * i)) & 0xffff);
  return (static_cast<float>(sum) / 65536.0F - 2.0F) * 1.7320508F;
}

/// Tensors of one shard.
class Shard {
 public:
  Shard(ThreadPool& pool, uint64_t seed) : pool_(pool), seed_(seed) {}

  void add(const std::string& name, const std::vector<int64_t>& shape, float deviation, float mean = 0.0F) {
    int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    Matrix values(DType::kBF16, rows, shape.back());
    const uint64_t first = mix(seed_ + names_.size()) << 8;
    pool_.parallel_for(rows, [&](int64_t r, int) {
      bfloat16* row = values.view().row<bfloat16>(r);
      for (int64_t c = 0; c < values.cols(); ++c)
        row[c] = to_bfloat16(mean + deviation * draw(first + static_cast<uint64_t>(r * values.cols() + c)));
    });
    names_.push_back(name);
    shapes_.push_back(shape);
    values_.push_back(std::move(values));
  }

  /// Writes the file and enters its tensors into the index.
  void write(const fs::path& dir, const std::string& file, ordered_json& index) {
    std::vector<TensorToWrite> tensors;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const ConstMatrixView v = std::as_const(values_[i]).view();
      tensors.push_back({names_[i],
                         StoredType::kBF16,
                         shapes_[i],
                         {v.data, static_cast<std::size_t>(v.rows * v.cols * dtype_bytes(v.dtype))}});
      index["weight_map"][names_[i]] = file;
    }
    write_safetensors(dir / file, tensors);
  }

 private:
  ThreadPool& pool_;
  uint64_t seed_;
  std::vector<std::string> names_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<Matrix> values_;
};

constexpr float kDeviation = 0.02F;

bool is_full_attention(int64_t layer) { return layer % kFullAttentionInterval == kFullAttentionInterval - 1; }

void add_mixer(Shard& shard, const std::string& name, bool is_full) {
  if (is_full) {
    shard.add(name + "self_attn.q_proj.weight", {2 * kHeads * kHeadDim, kHidden}, kDeviation);
    shard.add(name + "self_attn.k_proj.weight", {kKvHeads * kHeadDim, kHidden}, kDeviation);
    shard.add(name + "self_attn.v_proj.weight", {kKvHeads * kHeadDim, kHidden}, kDeviation);
    shard.add(name + "self_attn.o_proj.weight", {kHidden, kHeads * kHeadDim}, kDeviation);
    shard.add(name + "self_attn.q_norm.weight", {kHeadDim}, 0.1F);
    shard.add(name + "self_attn.k_norm.weight", {kHeadDim}, 0.1F);
    return;
  }
  const int64_t values = kValueHeads * kDeltaDim, channels = 2 * kKeyHeads * kDeltaDim + values;
  shard.add(name + "linear_attn.in_proj_qkv.weight", {channels, kHidden}, kDeviation);
  shard.add(name + "linear_attn.in_proj_z.weight", {values, kHidden}, kDeviation);
  shard.add(name + "linear_attn.in_proj_b.weight", {kValueHeads, kHidden}, kDeviation);
  shard.add(name + "linear_attn.in_proj_a.weight", {kValueHeads, kHidden}, kDeviation);
  shard.add(name + "linear_attn.conv1d.weight", {channels, 1, kConvKernel}, 0.4F);
  shard.add(name + "linear_attn.dt_bias", {kValueHeads}, 0.5F);
  shard.add(name + "linear_attn.A_log", {kValueHeads}, 0.5F, 1.0F);
  shard.add(name + "linear_attn.norm.weight", {kDeltaDim}, 0.1F, 1.0F);
  shard.add(name + "linear_attn.out_proj.weight", {kHidden, values}, kDeviation);
}

void add_layer(Shard& shard, int64_t layer) {
  const std::string name = "model.language_model.layers." + std::to_string(layer) + ".";
  shard.add(name + "input_layernorm.weight", {kHidden}, 0.1F);
  shard.add(name + "post_attention_layernorm.weight", {kHidden}, 0.1F);
  add_mixer(shard, name, is_full_attention(layer));
  shard.add(name + "mlp.gate.weight", {kExperts, kHidden}, kDeviation);
  shard.add(name + "mlp.experts.gate_up_proj", {kExperts, 2 * kInner, kHidden}, kDeviation);
  shard.add(name + "mlp.experts.down_proj", {kExperts, kHidden, kInner}, kDeviation);
  shard.add(name + "mlp.shared_expert.gate_proj.weight", {kInner, kHidden}, kDeviation);
  shard.add(name + "mlp.shared_expert.up_proj.weight", {kInner, kHidden}, kDeviation);
  shard.add(name + "mlp.shared_expert.down_proj.weight", {kHidden, kInner}, kDeviation);
  shard.add(name + "mlp.shared_expert_gate.weight", {1, kHidden}, kDeviation);
}

void write_config(const fs::path& dir, int64_t num_layers) {
  ordered_json layer_types = ordered_json::array();
  for (int64_t l = 0; l < num_layers; ++l) layer_types.push_back(is_full_attention(l) ? "full_attention" : "linear_attention");
  const ordered_json config{{"architectures", {"Qwen3_5MoeForCausalLM"}},
                            {"model_type", "qwen3_5_moe"},
                            {"dtype", "bfloat16"},
                            {"tie_word_embeddings", false},
                            {"text_config",
                             {{"model_type", "qwen3_5_moe_text"},
                              {"vocab_size", kVocab},
                              {"hidden_size", kHidden},
                              {"num_hidden_layers", num_layers},
                              {"num_attention_heads", kHeads},
                              {"num_key_value_heads", kKvHeads},
                              {"head_dim", kHeadDim},
                              {"hidden_act", "silu"},
                              {"max_position_embeddings", 262144},
                              {"rms_norm_eps", 1e-6},
                              {"attention_bias", false},
                              {"rope_parameters",
                               {{"rope_type", "default"},
                                {"rope_theta", 1e7},
                                {"partial_rotary_factor", 0.25},
                                {"mrope_interleaved", true},
                                {"mrope_section", {11, 11, 10}}}},
                              {"linear_conv_kernel_dim", kConvKernel},
                              {"linear_key_head_dim", kDeltaDim},
                              {"linear_value_head_dim", kDeltaDim},
                              {"linear_num_key_heads", kKeyHeads},
                              {"linear_num_value_heads", kValueHeads},
                              {"moe_intermediate_size", kInner},
                              {"shared_expert_intermediate_size", kInner},
                              {"num_experts", kExperts},
                              {"num_experts_per_tok", kTopK},
                              {"layer_types", layer_types},
                              {"dtype", "bfloat16"}}}};
  write_file(dir / "config.json", [&](std::ostream& out) { out << config.dump(1) << '\n'; });
}

void write_slice(const fs::path& dir, int64_t num_layers) {
  fs::create_directories(dir);
  ThreadPool pool(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  ordered_json index{{"metadata", {{"format", "pt"}}}, {"weight_map", ordered_json::object()}};
  const auto shard = [&](const std::string& file, uint64_t seed, const std::function<void(Shard&)>& fill) {
    Shard tensors(pool, seed);
    fill(tensors);
    tensors.write(dir, file, index);
    std::fprintf(stderr, "ferry_slice: %s\n", file.c_str());
  };
  shard("embedding.safetensors", 1, [](Shard& s) {
    s.add("model.language_model.embed_tokens.weight", {kVocab, kHidden}, kDeviation);
    s.add("model.language_model.norm.weight", {kHidden}, 0.1F);
  });
  shard("lm_head.safetensors", 2, [](Shard& s) { s.add("lm_head.weight", {kVocab, kHidden}, kDeviation); });
  for (int64_t l = 0; l < num_layers; ++l) {
    const std::string file = "layer" + std::to_string(l) + ".safetensors";
    shard(file, 100 + static_cast<uint64_t>(l), [l](Shard& s) { add_layer(s, l); });
  }
  write_file(dir / "model.safetensors.index.json", [&](std::ostream& out) { out << index.dump(1) << '\n'; });
  write_config(dir, num_layers);  // last: without it the folder is no checkpoint
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  CLI::App app{
      "Writes a checkpoint with the shapes of Qwen3.5-35B-A3B, few layers and random weights: 1.7 GB a layer and 2 GB."};
  std::filesystem::path out;
  int64_t num_layers = 4;
  app.add_option("--out", out, "folder for the checkpoint")->required();
  app.add_option("--layers", num_layers, "every fourth is attention, the others DeltaNet; default 4")->check(CLI::Range(1, 40));
  CLI11_PARSE(app, argc, argv);
  try {
    ferry::write_slice(out, num_layers);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ferry_slice: %s\n", error.what());
    return 1;
  }
  return 0;
}
