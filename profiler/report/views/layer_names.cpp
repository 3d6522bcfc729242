#include "profiler/report/views/layer_names.h"

#include <algorithm>
#include <string_view>

#include "profiler/span_record.h"

namespace ferry {
namespace {

/// Names of what is in a layer, as checkpoints of a family have them (runtime/model/tensor_names.h).
struct LayerNames {
  const char* mixer_norm = "input_layernorm";
  const char* ffn_norm = "post_attention_layernorm";
  const char* router = "mlp.gate";
  const char* experts = "mlp.experts";
  const char* ffn = "mlp";
};
constexpr LayerNames kQwen;
constexpr LayerNames kLfm2{"operator_norm", "ffn_norm", "feed_forward.gate", "feed_forward.experts", "feed_forward"};

bool has_type(const std::vector<std::string>& layer_types, std::string_view type) {
  return std::ranges::find(layer_types, type) != layer_types.end();
}

/// "" for what belongs to the layer as a whole.
const char* name_in_layer(Zone zone, const LayerNames& names) {
  if (zone == Zone::kInputNorm) return names.mixer_norm;
  if (zone == Zone::kPostAttentionNorm) return names.ffn_norm;
  switch (zone_info(zone).part) {
    case Part::kDeltaNet: return "linear_attn";
    case Part::kAttention: return "self_attn";
    case Part::kShortConv: return "conv";
    case Part::kRouter: return names.router;
    case Part::kDispatch:
    case Part::kCombine:
    case Part::kExperts: return names.experts;
    case Part::kSharedExpert: return "mlp.shared_expert";
    case Part::kDenseFfn: return names.ffn;
    default: return "";
  }
}

std::string name_outside_layers(Zone zone) {
  switch (zone) {
    case Zone::kEmbedding: return "model.embed_tokens";
    case Zone::kRopeTable: return "model.rotary_emb";
    case Zone::kFinalNorm: return "model.norm";
    case Zone::kLmHead: return "lm_head";
    case Zone::kMtpFc: return "mtp.fc";
    default: return zone_info(zone).part == Part::kVision ? "model.visual" : "";
  }
}

}  // namespace

std::string model_name_of(Zone zone, int16_t layer, const std::vector<std::string>& layer_types) {
  if (layer == kNoLayer) return name_outside_layers(zone);
  const auto index = static_cast<std::size_t>(layer);
  const bool is_mtp = index < layer_types.size() && layer_types[index] == "mtp";
  // What frames the MTP layer carries its number, too.
  const std::string outside = is_mtp ? name_outside_layers(zone) : "";
  if (!outside.empty()) return outside == "model.norm" ? "mtp.norm" : outside;
  std::string name = is_mtp ? "mtp.layers.0" : "model.layers." + std::to_string(layer);
  const std::string own = name_in_layer(zone, has_type(layer_types, "short_conv") ? kLfm2 : kQwen);
  return own.empty() ? name : name + "." + own;
}

}  // namespace ferry
