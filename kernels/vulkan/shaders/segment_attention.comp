#version 460
// segment_attention of ops.h: a workgroup of 256 a (piece of a segment's rows, head) takes the segment's keys in order, a block
// of kAttentionTile at a time, in fp32, with a running maximum and sum for each row (arXiv 2205.14135, algorithm 1).
#include "common.glsl"
#include "exponential.glsl"
#include "push_vision.h"

layout(push_constant, scalar) uniform Push { SegmentAttentionPush p; };

#include "segment_scores.glsl"

layout(constant_id = 2) const uint kTileKeys = 16;  // at most kValueTileFloats / kHeadDim
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Pieces { SegmentRows v[]; };

const uint kColumns = (kHeadDim + 15) / 16;  // of an invocation: every 16th

shared float value_tile[kValueTileFloats];  // [kTileKeys, kHeadDim]

void load_values(uint first_key, uint end) {
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < kTileKeys * kHeadDim; i += gl_WorkGroupSize.x) {
    value_tile[i] = load_element(p.v, p.v_stride, first_key + i / kHeadDim, end, i % kHeadDim);
  }
  barrier();
}

void main() {
  if (workgroup_row() >= p.num_pieces) return;
  SegmentRows piece = Pieces(p.pieces + uint64_t(workgroup_row()) * 12).v[0];
  uint column = gl_LocalInvocationID.x % 16, quad = gl_LocalInvocationID.x / 16;
  vec4 sums[kColumns];  // of a quad of rows
  [[unroll]] for (uint i = 0; i < kColumns; ++i) sums[i] = vec4(0.0);
  if (gl_LocalInvocationID.x < kAttentionTile) {
    largest[gl_LocalInvocationID.x] = -3.4e38;  // below every finite score
    total[gl_LocalInvocationID.x] = 0.0;
  }
  for (uint first_key = piece.begin; first_key < piece.end; first_key += kAttentionTile) {
    uint num_keys = min(kAttentionTile, piece.end - first_key);
    score(piece.first, first_key, piece.end);
    weigh(num_keys);
    vec4 scale = vec4(rescale[4 * quad], rescale[4 * quad + 1], rescale[4 * quad + 2], rescale[4 * quad + 3]);
    [[unroll]] for (uint i = 0; i < kColumns; ++i) sums[i] *= scale;
    for (uint done = 0; done < num_keys; done += kTileKeys) {
      load_values(first_key + done, piece.end);
      for (uint key = 0; key < min(kTileKeys, num_keys - done); ++key) {
        vec4 weight = weights[(done + key) * kQuads + quad];
        [[unroll]] for (uint i = 0; i < kColumns; ++i) {
          uint dim = column + 16 * i;
          if (dim < kHeadDim) sums[i] += weight * value_tile[key * kHeadDim + dim];
        }
      }
    }
  }
  for (uint j = 0; j < 4; ++j) {
    uint row = piece.first + 4 * quad + j;
    if (row >= min(piece.end, piece.first + kAttentionTile)) break;
    [[unroll]] for (uint i = 0; i < kColumns; ++i) {
      uint dim = column + 16 * i;
      uint64_t at = uint64_t(row) * p.result_stride + gl_WorkGroupID.z * kHeadDim + dim;
      if (dim < kHeadDim) store_t(p.result, at, sums[i][j] / total[4 * quad + j]);
    }
  }
}
