#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/vision/placeholders.h"
#include "runtime/vision/preprocess.h"

namespace ferry {

/// The vision tower as data, from vision_config of config.json.
struct VisionPlan {
  int64_t depth = 0;  // blocks
  int64_t hidden_dim = 0;
  int64_t intermediate_dim = 0;
  int64_t num_heads = 0;  // divides hidden_dim
  int64_t patch_size = 0;
  int64_t temporal_patch_size = 0;
  int64_t merge_size = 0;      // patches a side of a token
  int64_t position_side = 0;   // rows and columns of the learned table of positions
  int64_t out_hidden_dim = 0;  // the decoder's
  double rope_theta = 0;

  int64_t head_dim() const { return hidden_dim / num_heads; }
  int64_t patch_cols() const { return 3 * temporal_patch_size * patch_size * patch_size; }
  /// Patches of a token.
  int64_t merged_patches() const { return merge_size * merge_size; }
  int64_t merged_dim() const { return hidden_dim * merged_patches(); }
};

/// What a checkpoint says of pictures.
struct VisionConfig {
  VisionPlan plan;
  VisionTokens tokens;
  PictureProcessor pictures;
  VideoProcessor videos;
};

/// Reads config.json, and preprocessor_config.json and video_preprocessor_config.json, or processor_config.json with both,
/// where they exist: what they leave out has the published models' values. Nothing if the checkpoint has no tower.
///
/// Throws Error{kInvalidArgument} naming file, key, value and what is allowed.
std::optional<VisionConfig> load_vision_config(const std::filesystem::path& checkpoint_dir);

}  // namespace ferry
