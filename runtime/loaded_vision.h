#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "runtime/media_encoder.h"
#include "runtime/media_intake.h"
#include "runtime/model/vision/vision_plan.h"
#include "runtime/model/vision/vision_weights.h"
#include "runtime/options/engine_options.h"
#include "runtime/rank_setup.h"
#include "runtime/text/tokenizer.h"

namespace ferry {

/// What rank 0 needs for pictures and videos: from files that come in to embeddings.
struct LoadedVision {
  /// Packs the tower's weights. `max_prompt`: tokens of the longest prompt. Tokenizer (may be null) and `compute` outlive this.
  /// Throws Error for a tower that config.json and weights do not agree on, and where memory does not do.
  LoadedVision(const EngineOptions& options, const VisionConfig& vision_config, const Checkpoint& checkpoint,
               const Tokenizer* tokenizer, ComputeResources& compute, DType dtype, int64_t max_prompt);

  const VisionConfig config;
  const MediaIntake intake;
  const VisionWeights weights;
  MediaEncoder encoder;
  const int64_t weight_bytes;
  const int64_t tower_bytes;  // of the encoder's buffers, at most
  const int64_t cache_bytes;  // of embeddings, at most
  const int64_t open_bytes;   // of the pixels of all requests, at most

  /// One line for people.
  std::string describe_memory() const;
};

/// What config.json says of the checkpoint's tower; nothing if there is none that Ferry can read. `complaint` then says why:
/// text can still be served.
std::optional<VisionConfig> find_vision(const std::filesystem::path& model, const Checkpoint& checkpoint,
                                        std::string& complaint);

/// Bytes that load_vision() would take of a device's memory: weights, buffers, cache; 0 where it is null.
int64_t vision_need(const EngineOptions& options, const Checkpoint& checkpoint, DType dtype, int64_t max_prompt);

/// Null if options want no pictures, find_vision() finds no tower or no picture fits `max_prompt`; `complaint` says why.
std::unique_ptr<LoadedVision> load_vision(const EngineOptions& options, const Checkpoint& checkpoint,
                                          const Tokenizer* tokenizer, ComputeResources& compute, DType dtype,
                                          int64_t max_prompt, std::string& complaint);

}  // namespace ferry
