#pragma once

#include "moe/routing/routing_hook.h"
#include "runtime/checkpoint/quantization.h"
#include "runtime/model/config.h"
#include "runtime/model/products.h"
#include "runtime/model/step_input.h"
#include "runtime/model/tap.h"
#include "runtime/state/kv_cache.h"
#include "runtime/state/recurrent_state.h"

namespace ferry {

/// Of a run: what sizes the buffers of mixers and feed-forward networks.
struct BlockLimits {
  Stream& stream;  // whose memory they lie in
  DType dtype = DType::kF32;
  int64_t max_tokens = 0;     // rows of a step
  int64_t max_sequences = 0;  // spans of a step
  Quantization quantization;
};

/// What a mixer or a feed-forward network gets of the step: one micro-batch's rows on their way through one layer.
struct BlockStep {
  const Products& products;
  const StepInput& input;
  const MicroBatch& batch;
  Activations normed;  // [batch's rows, hidden_dim] what it reads; codes if it takes_codes()
  KvCache& kv_cache;
  RecurrentState& recurrent_state;
  const Tap* tap;        // may be null
  RoutingHook* routing;  // may be null
};

}  // namespace ferry
