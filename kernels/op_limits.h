#pragma once

#include <cstdint>

#include "runtime/base/types.h"

namespace ferry {

/// The largest arguments that ops get in a run, as far as the memory depends on them that a device needs for ops besides. What
/// a model does not have stays 0.
struct OpLimits {
  DType dtype = DType::kF32;
  int64_t max_tokens = 0, max_sequences = 0;   // of a step
  int64_t max_keys = 0;                        // of a sequence
  int64_t num_heads = 0, head_dim = 0;         // of attention
  int64_t num_k_heads = 0, num_v_heads = 0;    // of gated_delta_rule
  int64_t k_dim = 0, v_dim = 0;                // likewise
  int64_t chunk = 0;                           // likewise
  int64_t num_experts = 0;                     // of a layer, on the device
  int64_t max_logit_rows = 0, vocab_size = 0;  // of argmax
};

}  // namespace ferry
