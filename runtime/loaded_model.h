#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "moe/expert_bank.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/cluster.h"
#include "runtime/load_progress.h"
#include "runtime/model/config.h"
#include "runtime/model/weights.h"
#include "runtime/options/engine_options.h"
#include "runtime/rank_setup.h"
#include "runtime/text/tokenizer.h"

namespace ferry {

/// The checkpoint's tokenizer, or why there is none that Ferry can read: then only token ids work.
struct LoadedTokenizer {
  std::optional<Tokenizer> tokenizer;
  std::optional<Error> complaint;  // why it is absent
};

LoadedTokenizer load_tokenizer(const EngineOptions& options);

/// Throws Error for a tokenizer that is there and cannot be used. A server should not find that out from a request.
void require_usable(const LoadedTokenizer& tokenizer);

/// How loading went.
struct LoadCount {
  int64_t bytes = 0;  // of the checkpoint: matrices, and of a device the embedding
  double seconds = 0;
};

/// Rank 0's weights and what computes with them.
struct LoadedModel {
  /// Packs the weights, the routed experts' if this rank is alone. `config` is of `options.model`, which `opened` is the
  /// checkpoint of, and, as `compute`, outlives this. Throws Error for a bad checkpoint and where memory does not do.
  LoadedModel(const EngineOptions& options, const Cluster& cluster, const ModelConfig& config, DType dtype,
              ComputeResources& compute, Checkpoint opened, LoadProgress& progress);

  LoadCount load_count;
  Checkpoint checkpoint;  // its files hold the embedding and panels
  TrunkWeights weights;
  std::optional<ExpertBank> local_experts;
};

}  // namespace ferry
