#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/named_token_id.h"
#include "runtime/base/types.h"

namespace ferry {

enum class LayerKind : uint8_t { kLinearAttention, kFullAttention };

/// Gated attention layers.
struct AttentionConfig {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // even, <= head_dim
  double rope_theta = 0;
  std::array<int64_t, 3> mrope_section{};  // frequencies of the time, height and width axes; all zero: plain rotary positions
};

/// Gated DeltaNet layers.
struct DeltaNetConfig {
  int64_t num_k_heads = 0;
  int64_t num_v_heads = 0;  // a multiple of num_k_heads
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t conv_kernel = 0;

  int64_t key_dim() const { return num_k_heads * k_dim; }
  int64_t value_dim() const { return num_v_heads * v_dim; }
  int64_t conv_channels() const { return 2 * key_dim() + value_dim(); }
};

/// Mixture of experts, in every layer.
struct MoeConfig {
  int64_t num_experts = 0;
  int64_t top_k = 0;             // <= num_experts
  int64_t intermediate_dim = 0;  // of one routed expert
  int64_t shared_intermediate_dim = 0;
};

/// What generation_config.json recommends; only the stop ids act by themselves.
struct GenerationDefaults {
  std::vector<TokenId> stop_token_ids;
  bool do_sample = false;
  std::optional<double> temperature, top_p;
  std::optional<int64_t> top_k;
};

/// config.json of a Qwen3.5-MoE checkpoint (text part), read and validated once.
struct ModelConfig {
  std::string name;            // the checkpoint folder's name
  std::string architecture;    // for example Qwen3_5MoeForConditionalGeneration
  DType dtype = DType::kBF16;  // of the checkpoint
  int64_t vocab_size = 0;      // rows of embedding and lm_head, padding rows included
  int64_t hidden_dim = 0;
  int64_t max_context = 0;  // tokens
  float rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  std::vector<LayerKind> layers;
  AttentionConfig attention;
  DeltaNetConfig deltanet;
  MoeConfig moe;
  GenerationDefaults generation;
  std::vector<NamedTokenId> placeholders;  // ids that stand for pictures and videos in a prompt

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  int64_t num_layers_of(LayerKind kind) const;
};

/// Reads config.json and, if there is one, generation_config.json. Accepts the nested layout (text_config) and the flat one.
/// Throws Error naming the key, its value and what is allowed.
ModelConfig load_config(const std::filesystem::path& checkpoint_dir);

/// generation_config.json alone, with errors as load_config's; `vocab_size` bounds its ids.
GenerationDefaults read_generation_config(const std::filesystem::path& path, int64_t vocab_size);

}  // namespace ferry
