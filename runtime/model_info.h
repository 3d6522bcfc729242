#pragma once

#include <cstdint>
#include <string>

#include "kernels/kv_layout.h"
#include "runtime/base/types.h"
#include "runtime/model/config.h"

namespace ferry {

/// What a running program serves and how it is laid out; constant once the engine has started.
struct ModelInfo {
  std::string name;                     // the checkpoint folder's name
  std::string architecture;             // as config.json has it
  DType dtype = DType::kBF16;           // of weights and activations in this run
  DType kv_cache_dtype = DType::kBF16;  // of keys and values
  int64_t vocab_size = 0;
  int64_t context_length = 0;  // tokens of prompt and completion together, in this run
  int64_t num_layers = 0;
  int64_t hidden_dim = 0;
  int64_t num_experts = 0;  // routed experts in a layer
  int64_t experts_per_token = 0;
  int32_t num_expert_workers = 0;  // 0: the coordinator holds the experts itself
  std::string transport;           // "local", "sockets", "mpi" or "gloo"
  bool takes_media = false;        // pictures and videos
  bool takes_priorities = false;   // other than 0, of requests
  GenerationDefaults generation;   // stop ids and recommended sampling

  const char* kv_cache_name() const { return kv_dtype_name(kv_cache_dtype); }
};

}  // namespace ferry
