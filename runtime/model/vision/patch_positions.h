#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vision/grid.h"

// Where the patches of a picture lie, for the tower: rows and columns by patch, in the order of runtime/vision/preprocess.h.

namespace ferry {

struct PatchPlace {
  int64_t row = 0;
  int64_t col = 0;
};

/// The place of patch `patch_idx` of one step of `grid`.
PatchPlace patch_place(const Grid& grid, int64_t merge_size, int64_t patch_idx);

/// Four rows of a learned table of side x side positions and their weights, which sum to one.
struct PositionTaps {
  std::array<int64_t, 4> rows{};
  std::array<float, 4> weights{};
};

/// Bilinear interpolation of the table at a patch, the corners of grid and table falling together; in fp32, step by step as
/// transformers/vision_utils.py (5.23).
PositionTaps position_taps(const Grid& grid, PatchPlace place, int64_t side);

/// Angles by which heads turn: the first quarter of a head's columns with the patch's row, the second with its column.
class AxialRope {
 public:
  AxialRope(int64_t head_dim, double theta);
  /// Writes cos and sin [head_dim / 2] of a place.
  void write(PatchPlace place, float* cos, float* sin) const;

 private:
  std::vector<float> inv_freq_;  // [head_dim / 4]
};

}  // namespace ferry
