#version 460
// Products of bf16 and int8 weights with few rows, with cooperative matrices. Weights go from memory into fragments.
//
// A subgroup takes kPanels panels and every kSegmentSlots-th segment of k; subgroups that share panels hand their sums over in
// shared memory. A chunk of tiles at a time: all its weights are asked for at once, straight into fragments, while its x goes
// through shared memory, each subgroup's or, where several multiply the same segment by many rows, each segment's through its
// own part. Other subgroups hide the time that takes: fragments of the next chunk beside those in use cost more registers, and
// so subgroups, than they gain (a third slower at 16 rows on an H100). Weights that pass through shared memory too, in pieces
// of 16 bytes of which the next are on their way, take a third longer (bf16, groups of 2 rows).
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_bfloat16 : enable
#include "kernels/vulkan/shaders/matmul_common.glsl"
#include "kernels/vulkan/shaders/matmul_fragments.glsl"
#include "kernels/vulkan/shaders/matmul_finish.glsl"

layout(constant_id = 8) const uint kSegmentSlots = 4;
layout(constant_id = 9) const uint kPanels = 1;       // even if the weights are gated
layout(constant_id = 10) const uint kChunkTiles = 8;  // divides kSegmentTiles
layout(constant_id = 11) const uint kSharesRows = 0;  // whether subgroups that multiply the same segment stage x together

const uint kPanelSlots = kSubgroups / kSegmentSlots;
const uint kFragmentsM = kPanelRows / kFragmentM;  // of a panel
const uint kFragmentsN = kTileRows / kFragmentN;
const uint kFragmentsK = kTileK / kFragmentK;  // of a tile
const uint kPanelSums = kFragmentsM * kFragmentsN;
const uint kAllSums = kPanels * kPanelSums;
const uint kPanelLefts = kChunkTiles * kFragmentsM * kFragmentsK;
const uint kAllLefts = kPanels * kPanelLefts;

const uint kRowSlots = kSharesRows != 0 ? kSegmentSlots : kSubgroups;  // that stage x, each its own
const uint kRowTeam = kSubgroups / kRowSlots * kSubgroupSize;          // invocations of one
const uint kRowPieces = 2 * kChunkTiles;                               // 16 bytes each, of a row of x in a chunk
const uint kRowUnits = (kRowPieces + 1) * kPieceUnits;                 // one more keeps rows in different banks
const uint kStageUnits = kTileRows * kRowUnits;                        // of a slot
const uint kStagePieces = kTileRows * kRowPieces;
const uint kLanePieces = (kStagePieces + kRowTeam - 1) / kRowTeam;
const uint kLaneSums = (kPanelSlots * kFragmentSize + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
const uint kAllLaneSums = kAllSums * kLaneSums;

shared UNIT stage[kRowSlots * kStageUnits];
shared SUM parts[kSubgroups * kFragmentSize];

SUMS sums[kAllSums];       // of the segment in progress, by panel, fragment of columns and fragment of rows
SUM totals[kAllLaneSums];  // of the segments before it, each by one invocation
LEFT lefts[kAllLefts];
uint64_t row_addresses[kLanePieces];  // of the rows whose pieces the invocation stages; 0: none
uvec4 next_pieces[kLanePieces];

uint stage_place(uint i) { return gl_SubgroupID / kRowSlots * kSubgroupSize + gl_SubgroupInvocationID + i * kRowTeam; }
uint first_unit() { return gl_SubgroupID % kRowSlots * kStageUnits; }

void find_rows(MatmulTile rows) {
  [[unroll]] for (uint i = 0; i < kLanePieces; ++i) {
    uint row = stage_place(i) / kRowPieces;
    row_addresses[i] = row < rows.num_rows ? x_row_address(rows.first_row + row) : 0;
  }
}

uvec4 load_piece(uint i, uint first_tile) {
  uint piece = stage_place(i) % kRowPieces;
  return row_addresses[i] == 0 ? uvec4(0) : x_piece(row_addresses[i], first_tile * kTileK + piece * kPieceElements);
}

void load_rows(uint first_tile) {
  if (kHasPieces == 0) return;
  [[unroll]] for (uint i = 0; i < kLanePieces; ++i) next_pieces[i] = load_piece(i, first_tile);
}

void stage_rows(uint first_tile) {
  [[unroll]] for (uint i = 0; i < kLanePieces; ++i) {
    uvec4 piece = kHasPieces != 0 ? next_pieces[i] : load_piece(i, first_tile);
    uint place = stage_place(i), at = first_unit() + place / kRowPieces * kRowUnits + place % kRowPieces * kPieceUnits;
    if (place >= kStagePieces) continue;
#ifdef W_BF16
    stage[at] = piece;
#else
    stage[at] = piece.xy;
    stage[at + 1] = piece.zw;
#endif
  }
}

// Tiles behind the last are read as the last: their rows of x are zeros.
void load_lefts(uint64_t weights, uint first_panel, uint first_tile) {
  [[unroll]] for (uint i = 0; i < kPanels; ++i) {
    uint panel = min(first_panel + i, p.num_panels - 1);
    [[unroll]] for (uint t = 0; t < kChunkTiles; ++t) {
      Elements tile = Elements(tile_address(weights, panel, min(first_tile + t, num_tiles() - 1)));
      [[unroll]] for (uint m = 0; m < kFragmentsM; ++m) {
        [[unroll]] for (uint k = 0; k < kFragmentsK; ++k) {
          coopMatLoad(lefts[((i * kChunkTiles + t) * kFragmentsM + m) * kFragmentsK + k], tile.v,
                      m * kFragmentM * kTileK + k * kFragmentK, kTileK, gl_CooperativeMatrixLayoutRowMajor);
        }
      }
    }
  }
}

void multiply_chunk() {
  [[unroll]] for (uint t = 0; t < kChunkTiles; ++t) {
    [[unroll]] for (uint k = 0; k < kFragmentsK; ++k) {
      [[unroll]] for (uint n = 0; n < kFragmentsN; ++n) {
        RIGHT right;
        uint row = first_unit() + n * kFragmentN * kRowUnits;
        uint at = (t * 32 + k * kFragmentK * kElementBytes) / kUnitBytes;
        coopMatLoad(right, stage, row + at, kRowUnits, gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint i = 0; i < kPanels; ++i) {
          [[unroll]] for (uint m = 0; m < kFragmentsM; ++m) {
            uint sum = (i * kFragmentsM + m) * kFragmentsN + n;
            sums[sum] = coopMatMulAdd(lefts[((i * kChunkTiles + t) * kFragmentsM + m) * kFragmentsK + k], right, sums[sum]);
          }
        }
      }
    }
  }
}

void await_stage() {
  if (kSharesRows != 0) {
    barrier();
  } else {
    subgroupBarrier();
  }
}

// `count` tiles from `first_tile` on. Where subgroups share rows, all stage as many chunks.
void multiply_segment(uint64_t weights, uint first_panel, uint first_tile, uint count) {
  [[unroll]] for (uint i = 0; i < kAllSums; ++i) sums[i] = SUMS(SUM(0));
  load_rows(first_tile);
  uint end = kSharesRows != 0 ? min(num_tiles(), kSegmentTiles) : count;
  for (uint done = 0; done < end; done += kChunkTiles) {
    if (done < count) load_lefts(weights, first_panel, first_tile + done);
    await_stage();
    stage_rows(first_tile + done);
    await_stage();
    load_rows(first_tile + done + kChunkTiles);
    if (done < count) multiply_chunk();
  }
}

// Adds the `count` segments that the subgroups have multiplied, in ascending order.
void add_segments(uint count) {
  [[unroll]] for (uint i = 0; i < kAllSums; ++i) {
    barrier();
    coopMatStore(sums[i], parts, gl_SubgroupID * kFragmentSize, kFragmentM, gl_CooperativeMatrixLayoutColumnMajor);
    barrier();
    [[unroll]] for (uint j = 0; j < kLaneSums; ++j) {
      uint at = gl_LocalInvocationID.x + j * gl_WorkGroupSize.x;
      uint first = at / kFragmentSize * (kSegmentSlots * kFragmentSize) + at % kFragmentSize;
      if (at >= kPanelSlots * kFragmentSize) continue;
      precise SUM total = totals[i * kLaneSums + j];
      for (uint s = 0; s < count; ++s) total += parts[first + s * kFragmentSize];
      totals[i * kLaneSums + j] = total;
    }
  }
}

// The invocation's j-th total of fragment `i`.
void finish(MatmulTile rows, uint64_t weights, uint i, uint j) {
  uint at = gl_LocalInvocationID.x + j * gl_WorkGroupSize.x;
  uint panel = (part_of_panels() * kPanelSlots + at / kFragmentSize) * kPanels + i / kPanelSums;
  uint row = i % kFragmentsN * kFragmentN + at % kFragmentSize / kFragmentM;
  uint lane = i % kPanelSums / kFragmentsN * kFragmentM + at % kFragmentM;
  uint col = (kIsGated != 0 ? panel / 2 : panel) * kPanelRows + lane, call_row = rows.first_row + row;
  if (at >= kPanelSlots * kFragmentSize || row >= rows.num_rows || col >= p.out_cols) return;
  float sum = product_sum(weights, panel, lane, call_row, totals[i * kLaneSums + j]);
  if (kIsGated == 0) {
    store_product(call_row, col, sum);
  } else {
    uint up = min((i + kPanelSums) * kLaneSums + j, kAllLaneSums - 1);
    store_gated(call_row, col, sum, product_sum(weights, panel + 1, lane, call_row, totals[up]));
  }
}

void main() {
  MatmulTile rows = row_tile(gl_WorkGroupID.x, kTileRows);
  if (rows.num_rows == 0) return;
  uint64_t weights = group_weights(rows);
  uint first_panel = (part_of_panels() * kPanelSlots + gl_SubgroupID / kSegmentSlots) * kPanels;
  uint tiles = num_tiles(), segments = (tiles + kSegmentTiles - 1) / kSegmentTiles;
  [[unroll]] for (uint i = 0; i < kAllLaneSums; ++i) totals[i] = SUM(0);
  find_rows(rows);
  for (uint first = 0; first < segments; first += kSegmentSlots) {
    uint tile = (first + gl_SubgroupID % kSegmentSlots) * kSegmentTiles;
    multiply_segment(weights, first_panel, tile, tile < tiles ? min(tiles - tile, kSegmentTiles) : 0);
    add_segments(min(segments - first, kSegmentSlots));
  }
  [[unroll]] for (uint i = 0; i < kAllSums; ++i) {
    if (kIsGated != 0 && i / kPanelSums % 2 == 1) continue;
    [[unroll]] for (uint j = 0; j < kLaneSums; ++j) finish(rows, weights, i, j);
  }
}
