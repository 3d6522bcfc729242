#pragma once

#include "profiler/zones.h"

namespace ferry {

/// Kinds of layers in the order of a step.
inline constexpr const char* kLayerTypes[] = {"embed", "linear_attention", "full_attention", "moe",
                                              "norm",  "lm_head",          "sample",         "other"};

/// One of kLayerTypes: the kind of layer that a zone's time belongs to. Waits for experts are the MoE block's.
const char* layer_type_of(Zone zone);

}  // namespace ferry
