#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/zones.h"

namespace ferry {

/// What the model's checkpoint calls that which a zone's time is spent in: "model.layers.3.linear_attn",
/// "model.layers.3.mlp.experts", "model.embed_tokens", "lm_head", "mtp.layers.0.self_attn". `layer_types` are ModelFacts'; of
/// work in no layer `layer` is kNoLayer. "" for what is no part of a model, as sampling.
std::string model_name_of(Zone zone, int16_t layer, const std::vector<std::string>& layer_types);

}  // namespace ferry
