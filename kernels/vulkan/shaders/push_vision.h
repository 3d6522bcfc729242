#pragma once

#include "kernels/vulkan/shaders/push_types.h"

// Push constants of ops of the vision tower alone. Strides count elements.

PUSH_BEGIN

// What add_bias.comp does with y = T(x + bias): its specialisation constant 2.
const uint kPlainBias = 0;
const uint kBiasGeluTanh = 1;
const uint kBiasGelu = 2;
const uint kBiasResidual = 3;

struct AddBiasPush {
  uint64_t x, bias, residual, result;  // bias fp32; residual of kBiasResidual
  uint x_stride, residual_stride, result_stride;
  uint rows, cols;
};

const uint kAttentionTile = 64;      // rows of a workgroup, and keys that it takes at once
const uint kValueTileFloats = 2048;  // of values in its shared memory; a head has no more dimensions

// Rows of a segment that a workgroup works on: at most kAttentionTile, from `first`. The segment has the rows [begin, end).
struct SegmentRows {
  uint first, begin, end;
};

struct SegmentAttentionPush {
  uint64_t q, k, v, result;
  uint64_t pieces;  // [num_pieces] SegmentRows
  uint q_stride, k_stride, v_stride, result_stride;
  uint num_pieces;
  float scale;  // of scores
};

PUSH_END
