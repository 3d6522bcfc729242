#pragma once

#include "kernels/vulkan/shaders/push_types.h"

// Products. kernels/vulkan/pack_weights.h says how weights lie.

PUSH_BEGIN

/// Consecutive rows of one group, which a workgroup multiplies by a part of the group's weights. A product is a list of these,
/// in device memory: whoever makes it, the host or another dispatch, there is a column of workgroups for each.
struct MatmulTile {
  uint group;      // whose weights
  uint first_row;  // of the call
  uint num_rows;   // 1 up to what the kernel takes; 0: none, there is nothing to do
};

/// Of matmul_tiles, which makes the list where the host does not know the counts.
struct MatmulTilesPush {
  uint64_t counts;  // [num_groups] int32
  uint64_t tiles;   // [max_tiles] MatmulTile
  uint num_groups, tile_rows, max_tiles;
};

/// Strides count elements. Row i of a call multiplies x[row_idx[i]] and goes to result[i].
struct MatmulPush {
  uint64_t x;         // [rows of x, k] T, or codes [rows of x, quantized_cols(k)]
  uint64_t x_scales;  // [rows of x] f32, of codes
  uint64_t row_idx;   // [rows] int32; 0: x[i]
  uint64_t tiles;     // [workgroups along x] MatmulTile; 0: all rows are of one group, cut into tiles from the first on
  uint64_t weights;   // [groups] uint64_t: where a group's packed matrix begins; of one group: that itself
  uint64_t result;    // [rows, out_cols] T
  uint64_t bias;      // [out_cols] f32; 0: no bias, and nothing that follows one
  uint64_t residual;  // [rows, out_cols] T; 0: none
  uint x_stride, result_stride, residual_stride;
  uint num_rows;
  uint k, out_cols;
  uint num_panels;      // of a packed matrix
  uint group_size;      // of e4m3 and int4: elements of k that share a scale, a power of two
  uint activation;      // behind a bias: BiasActivation
  uint tiles_are_runs;  // tiles[x] is not a tile, but the run that row x is in: it is the first of one, if a tile begins there
  float fma_probe;      // 1 + 2^-12, so that no compiler knows it
};

PUSH_END
