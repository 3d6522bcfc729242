#include <nlohmann/json.hpp>

#include "runtime/model/architectures/common_keys.h"
#include "runtime/model/architectures/pages.h"

// Dense Qwen3.5, text part: the mixers of its mixture sibling, a dense network in every layer, often tied embeddings. Follows
// transformers 5.17.0, models/qwen3_5/modeling_qwen3_5.py. Nested checkpoints and those of the text part alone.

namespace ferry {
namespace {

void read_qwen3_5(const ConfigFields& text, ModelConfig& config) {
  config.norm.is_offset = true;
  config.layers = read_layer_types(text, "linear_attention", Mixer::kGatedDelta);
  config.attention = read_attention(text, 256, 0.25);
  text.expect("attn_output_gate", {true});
  config.attention.has_gate = true;
  config.gated_delta = read_gated_delta(text);
  config.dense.intermediate_dim = text.integer("intermediate_size", 1, kMaxDim);
}

}  // namespace

constinit const Architecture kQwen35{
    .model_type = "qwen3_5", .text_model_type = "qwen3_5_text", .read = read_qwen3_5, .names = {}};

}  // namespace ferry
