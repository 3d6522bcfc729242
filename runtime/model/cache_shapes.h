#pragma once

#include <optional>

#include "runtime/model/config.h"
#include "runtime/state/kv_cache.h"
#include "runtime/state/recurrent_state.h"

// What a model's layers must remember of a sequence: all but the numbers of blocks and slots, which are the caller's.

namespace ferry {

/// Of keys and values in a run of `dtype`: that, or what --kv-cache-dtype asks for. Throws Error{kInvalidArgument} for bf16 in
/// a run of f32.
DType kv_cache_dtype(std::optional<DType> asked, DType dtype);

/// Keys and values of the attention layers, the MTP layer's last. `dtype` is the cache's.
KvCacheOptions kv_cache_shape(const ModelConfig& config, DType dtype, int64_t block_tokens);

/// Histories of convolutions, and the delta rule's matrices where there are gated delta layers.
RecurrentStateOptions recurrent_state_shape(const ModelConfig& config, DType dtype);

}  // namespace ferry
