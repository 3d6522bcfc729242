#pragma once

#include <array>

#include "profiler/zones.h"

namespace ferry {

/// Kinds of layers, of their halves and of what stands around them, in the order of a step.
inline constexpr std::array kLayerTypes{"embed", "linear_attention", "full_attention", "short_conv", "dense", "moe",
                                        "norm",  "lm_head",          "sample",         "other"};

/// The kind of layer that a zone's time belongs to: one of kLayerTypes. Waits for experts are the MoE block's.
const char* layer_type_of(Zone zone);

}  // namespace ferry
