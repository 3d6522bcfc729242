#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/named_token_id.h"
#include "runtime/base/types.h"
#include "runtime/checkpoint/source_format.h"
#include "runtime/model/layer_plan.h"

namespace ferry {

struct Architecture;

/// What generation_config.json recommends; only the stop ids act by themselves.
struct GenerationDefaults {
  std::vector<TokenId> stop_token_ids;
  bool do_sample = false;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, max_new_tokens;
};

/// config.json of a decoder (the text part), read and validated once.
struct ModelConfig {
  std::string name;            // the checkpoint folder's name
  std::string class_name;      // for example Qwen3_5MoeForConditionalGeneration
  DType dtype = DType::kBF16;  // of the checkpoint
  int64_t vocab_size = 0;      // rows of embedding and lm_head, padding rows included
  int64_t hidden_dim = 0;
  int64_t max_context = 0;  // tokens
  bool tie_word_embeddings = false;
  SourceFormat source;  // of matrices that the checkpoint has quantised
  NormPlan norm;
  std::vector<LayerPlan> layers;
  AttentionPlan attention;     // of the layers that have it; so the other plans
  GatedDeltaPlan gated_delta;  // likewise
  ShortConvPlan short_conv;
  DensePlan dense;
  MoePlan moe;       // of a dense model: the slices of its networks, if they can be cut
  bool mtp = false;  // a layer behind the last that guesses further tokens is to be loaded; the checkpoint has one (mtp.h)
  GenerationDefaults generation;
  std::vector<NamedTokenId> placeholders;      // ids that stand for pictures and videos in a prompt
  const Architecture* architecture = nullptr;  // whose tensor names it has; static

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  /// Layers that have experts, or could have, of which dispatchers and banks know: an MTP layer is behind the others.
  int64_t num_expert_layers() const { return num_layers() + (mtp ? 1 : 0); }
  /// What the MTP layer is made of: attention, and the network of the last layer.
  LayerPlan mtp_plan() const { return {Mixer::kAttention, layers.back().ffn}; }
  int64_t num_layers_of(Mixer mixer) const;
  int64_t num_layers_of(Ffn ffn) const;
  /// Whether the experts, if there are any, are slices.
  bool is_dense() const { return moe.is_sliced || moe.num_experts == 0; }
};

/// Reads config.json and, if there is one, generation_config.json. Accepts the nested layout (text_config) and the flat one.
/// Throws Error naming the key, its value and what is allowed, and as read_checked_file() does before it looks at the contents.
ModelConfig load_config(const std::filesystem::path& checkpoint_dir);

/// generation_config.json alone, with errors as load_config's; `vocab_size` bounds its ids.
GenerationDefaults read_generation_config(const std::filesystem::path& path, int64_t vocab_size);
/// Fields of sampling in a JSON object `text` take the place of `defaults`'. Throws Error{kInvalidArgument} for others, so that
/// none is thought to count; `what` names the text in messages.
void override_sampling(const std::string& text, const std::string& what, GenerationDefaults& defaults);

}  // namespace ferry
