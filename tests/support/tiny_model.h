#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.h"

// A small random Qwen3.5-MoE checkpoint: made in memory, damaged at will, written to a folder.

namespace ferry::test {

struct TinyModelOptions {
  StoredType dtype = StoredType::kBF16;  // of all tensors: F32 or BF16
  bool packed_experts = true;   // one tensor for a layer's experts, as released; otherwise one per expert and projection
  bool tie_embeddings = false;  // no lm_head
  std::string prefix = "model.language_model.";
  std::vector<std::string> layers = {"linear_attention", "full_attention", "linear_attention"};
  int64_t vocab = 97;
  int64_t hidden = 72;
  int64_t num_heads = 4, num_kv_heads = 2, head_dim = 40;  // a quarter of head_dim is rotary
  int64_t num_k_heads = 2, num_v_heads = 4, k_dim = 20, v_dim = 28, conv_kernel = 4;
  int64_t num_experts = 11, top_k = 3, expert_dim = 24, shared_dim = 36;
  int64_t max_context = 1024;
};

struct TinyTensor {
  StoredType dtype = StoredType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  /// Element `i`, counted row-major; F32 and BF16 only.
  void set(int64_t i, float value);
};

/// Values depend on seed-like tensor names alone: a checkpoint in F32 holds what the one in BF16 was rounded from, and the
/// two ways to store experts hold the same numbers.
struct TinyModel {
  explicit TinyModel(const TinyModelOptions& options = {});

  nlohmann::json config;      // config.json, with text_config
  nlohmann::json generation;  // generation_config.json; not written if null
  std::map<std::string, TinyTensor> tensors;

  nlohmann::json& text() { return config["text_config"]; }
  /// Writes the checkpoint: one file, or `num_shards` with an index.
  void write(const std::filesystem::path& dir, int num_shards = 1) const;
};

/// Writes every tensor of `from` as BF16 into `to`, with the same config files: the checkpoint that saving it in bfloat16
/// would give.
void write_bf16_copy(const std::filesystem::path& from, const std::filesystem::path& to);

/// Writes `value` to `path`.
void write_json(const std::filesystem::path& path, const nlohmann::json& value);

}  // namespace ferry::test
