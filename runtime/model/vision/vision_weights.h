#pragma once

#include <vector>

#include "kernels/backend.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/model/vision/vision_plan.h"
#include "runtime/model/weights.h"

// The weights of the vision tower, one field a tensor. Matrices are packed for the chosen matrix product in the run's dtype;
// vectors and the table of positions are held in f32. No part of a tower is quantised: checkpoints keep it in bf16.

namespace ferry {

/// A matrix product and what is added to its result.
struct LinearWeights {
  PackedPtr weight;   // [out, in]
  Array<float> bias;  // [out]
};

struct LayerNormWeights {
  Array<float> weight;  // [hidden]
  Array<float> bias;    // [hidden]
};

struct VisionBlockWeights {
  LayerNormWeights norm1;
  LinearWeights qkv;   // [3 * hidden, hidden]: rows of queries, keys and values, each by head
  LinearWeights proj;  // [hidden, hidden]
  LayerNormWeights norm2;
  LinearWeights linear_fc1;  // [intermediate, hidden]
  LinearWeights linear_fc2;  // [hidden, intermediate]
};

struct VisionWeights {
  LinearWeights patch_embed;     // [hidden, patch_cols]
  std::vector<float> pos_embed;  // [position_side * position_side, hidden]
  std::vector<VisionBlockWeights> blocks;
  LayerNormWeights merger_norm;
  LinearWeights merger_fc1;  // [merged_dim, merged_dim]
  LinearWeights merger_fc2;  // [out_hidden, merged_dim]
};

/// Whether `name` is a tensor of the tower.
bool is_of_vision_tower(std::string_view name);

/// What the tower's weights take in memory: matrices in the run's dtype, the others in f32.
int64_t vision_bytes(const Checkpoint& checkpoint, DType dtype);

/// Reads and packs the tensors behind "model.visual.", stored as F32, BF16 or F16. Calls pool. `check_finite` refuses NaN and
/// infinity. Throws Error{kInvalidArgument} for a tensor that is missing, has another shape or type, or that the plan does not
/// account for.
VisionWeights load_vision(const Checkpoint& checkpoint, const VisionPlan& plan, const Backend& backend, ThreadPool& pool,
                          DType dtype, bool check_finite = false);

}  // namespace ferry
