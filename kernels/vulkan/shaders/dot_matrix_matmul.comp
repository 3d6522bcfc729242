#version 460
// Products of int4 weights with few rows, with cooperative matrices.
//
// A workgroup takes kPanels panels and a tile of rows. A subgroup takes every kSubgroups-th tile of k, kSlotTiles of them a
// round, unpacks it to bytes in shared memory and multiplies it; the next round's codes and rows are on their way to registers
// meanwhile. A group's dot products are exact, so that it does not matter who adds its parts. They go through shared memory to
// one invocation for each element of a panel, which adds the groups in ascending order.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#include "kernels/vulkan/shaders/matmul_common.glsl"
#include "kernels/vulkan/shaders/matmul_fragments.glsl"
#include "kernels/vulkan/shaders/int4.glsl"
#include "kernels/vulkan/shaders/matmul_finish.glsl"

layout(constant_id = 8) const uint kPanels = 1;  // even if the weights are gated
layout(constant_id = 9) const uint kSlotTiles = 2;
layout(constant_id = 10) const uint kIsWide = 0;
layout(constant_id = 11) const uint kGroupSize = 64;  // 32 to 256

const uint kTileParts = kGroupSize < kTileK ? 2 : 1;  // that lie in one group
const uint kGroupParts = kGroupSize < kTileK ? 1 : kGroupSize / kTileK;
const uint kRoundTiles = kSubgroups * kSlotTiles;
const uint kRoundParts = kRoundTiles * kTileParts;
const uint kElements = kTileRows * kPanelRows;  // of a panel; each is an invocation's
const uint kRowDots = kPanelRows + 4;           // of shared memory; four more keep rows in different banks
const uint kPanelDots = kTileRows * kRowDots;
const uint kFragmentsN = kTileRows / kFragmentN;
const uint kPartFragments = kTileK / kTileParts / kFragmentK;

const uint kTilePieces = kTileBytes / 16;
const uint kLaneCodes = kTilePieces < kSubgroupSize ? 1 : kTilePieces / kSubgroupSize;  // pieces of a tile
const uint kRowPieces = kTileK / 16;                                                    // of a row of x in a tile
const uint kLaneRows = kTileRows * kRowPieces / kSubgroupSize;
const uint kRowUnits = kRowPieces + 1;  // of shared memory; the last one keeps rows in different banks
const uint kStageUnits = (kPanelRows + kTileRows) * kRowUnits;  // of a subgroup

shared uvec4 stage[kSubgroups * kStageUnits];  // of each subgroup: a panel's codes as bytes, then x
shared int dots[kRoundParts * kPanels * kPanelDots];
shared float scales[kRoundParts * kPanels * kPanelRows];

const uint kOwnCodes = kSlotTiles * kPanels * kLaneCodes;
uvec4 next_codes[kOwnCodes];
GroupWord next_words[kOwnCodes];
uvec4 next_rows[kSlotTiles * kLaneRows];
uint64_t row_addresses[kLaneRows];  // of the rows whose pieces the invocation stages; 0: none
float sums[kPanels];                // of the invocation's element, of each panel

uint piece_place(uint i) { return gl_SubgroupInvocationID + i * kSubgroupSize; }
uint own_tile(uint first_tile, uint j) { return first_tile + j * kSubgroups + gl_SubgroupID; }

void find_rows(MatmulTile rows) {
  [[unroll]] for (uint i = 0; i < kLaneRows; ++i) {
    uint row = piece_place(i) / kRowPieces;
    row_addresses[i] = row < rows.num_rows ? x_row_address(rows.first_row + row) : 0;
  }
}

// Tiles behind the last are read as the last: nobody adds what they come to.
void load_round(uint64_t weights, uint first_panel, uint first_tile) {
  uint groups = p.k / kGroupSize;
  [[unroll]] for (uint j = 0; j < kSlotTiles; ++j) {
    uint tile = min(own_tile(first_tile, j), num_tiles() - 1);
    [[unroll]] for (uint i = 0; i < kPanels * kLaneCodes; ++i) {
      uint panel = min(first_panel + i / kLaneCodes, p.num_panels - 1), place = piece_place(i % kLaneCodes) % kTilePieces;
      uint group = min((tile * kTileK + place % 2 * 32) / kGroupSize, groups - 1);
      next_codes[j * kPanels * kLaneCodes + i] = U32x4(tile_address(weights, panel, tile)).v[place];
      next_words[j * kPanels * kLaneCodes + i] = load_group_word(weights, panel, group, groups, place / 2, kIsWide != 0);
    }
    [[unroll]] for (uint i = 0; i < kLaneRows; ++i) {
      uint k = tile * kTileK + piece_place(i) % kRowPieces * 16;
      next_rows[j * kLaneRows + i] = row_addresses[i] == 0 ? uvec4(0) : x_piece(row_addresses[i], k);
    }
  }
}

// Of the j-th of the subgroup's tiles.
void stage_codes(uint j, uint panel) {
  uint first = gl_SubgroupID * kStageUnits, part = (j * kSubgroups + gl_SubgroupID) * kTileParts;
  [[unroll]] for (uint i = 0; i < kLaneCodes; ++i) {
    uint place = piece_place(i), own = (j * kPanels + panel) * kLaneCodes + i;
    uvec4 codes = next_codes[own];
    uint zero_point = next_words[own].zero_point, at = first + place / 2 * kRowUnits + place % 2 * 2;
    if (place >= kTilePieces) continue;
    stage[at] = uvec4(first_codes(codes.x, zero_point), last_codes(codes.x, zero_point), first_codes(codes.y, zero_point),
                      last_codes(codes.y, zero_point));
    stage[at + 1] = uvec4(first_codes(codes.z, zero_point), last_codes(codes.z, zero_point), first_codes(codes.w, zero_point),
                          last_codes(codes.w, zero_point));
    if (place % 2 < kTileParts)
      scales[((part + place % 2) * kPanels + panel) * kPanelRows + place / 2] = next_words[own].scale;
  }
}

void stage_rows(uint j) {
  uint first = gl_SubgroupID * kStageUnits + kPanelRows * kRowUnits;
  [[unroll]] for (uint i = 0; i < kLaneRows; ++i) {
    uint place = piece_place(i);
    stage[first + place / kRowPieces * kRowUnits + place % kRowPieces] = next_rows[j * kLaneRows + i];
  }
}

RIGHT rights[kTileParts * kPartFragments * kFragmentsN];  // of the tile in shared memory

void load_rights() {
  uint first = gl_SubgroupID * kStageUnits + kPanelRows * kRowUnits;
  [[unroll]] for (uint k = 0; k < kTileParts * kPartFragments; ++k) {
    [[unroll]] for (uint n = 0; n < kFragmentsN; ++n) {
      coopMatLoad(rights[k * kFragmentsN + n], stage, first + n * kFragmentN * kRowUnits + k * (kFragmentK / 16), kRowUnits,
                  gl_CooperativeMatrixLayoutColumnMajor);
    }
  }
}

// The dot products of the panel in shared memory with every row.
void multiply_panel(uint j, uint panel) {
  [[unroll]] for (uint part = 0; part < kTileParts; ++part) {
    SUMS part_sums[kFragmentsN];
    [[unroll]] for (uint n = 0; n < kFragmentsN; ++n) part_sums[n] = SUMS(0);
    [[unroll]] for (uint i = 0; i < kPartFragments; ++i) {
      uint k = part * kPartFragments + i;
      LEFT left;
      coopMatLoad(left, stage, gl_SubgroupID * kStageUnits + k * (kFragmentK / 16), kRowUnits,
                  gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint n = 0; n < kFragmentsN; ++n) {
        part_sums[n] = coopMatMulAdd(left, rights[k * kFragmentsN + n], part_sums[n]);
      }
    }
    uint to = (((j * kSubgroups + gl_SubgroupID) * kTileParts + part) * kPanels + panel) * kPanelDots;
    [[unroll]] for (uint n = 0; n < kFragmentsN; ++n) {
      coopMatStore(part_sums[n], dots, to + n * kFragmentN * kRowDots, kRowDots, gl_CooperativeMatrixLayoutColumnMajor);
    }
  }
}

void multiply_tile(uint j) {
  [[unroll]] for (uint panel = 0; panel < kPanels; ++panel) {
    subgroupBarrier();
    stage_codes(j, panel);
    if (panel == 0) stage_rows(j);
    subgroupBarrier();
    if (panel == 0) load_rights();
    multiply_panel(j, panel);
  }
}

// Adds the round's groups to the sums of an element: some at once from memory, one by one to the sum.
void add_groups(bool is_fused, uint first_tile, uint element) {
  const uint kAtOnce = 4;
  uint groups = min(kRoundParts / kGroupParts, (p.k - first_tile * kTileK) / kGroupSize);
  uint place = element / kPanelRows * kRowDots + element % kPanelRows;
  for (uint first = 0; first < groups; first += kAtOnce) {
    [[unroll]] for (uint i = 0; i < kPanels; ++i) {
      int dot[kAtOnce];
      float scale[kAtOnce];
      [[unroll]] for (uint j = 0; j < kAtOnce; ++j) {
        uint part = min(first + j, groups - 1) * kGroupParts;
        scale[j] = scales[(part * kPanels + i) * kPanelRows + element % kPanelRows];
        dot[j] = 0;
        [[unroll]] for (uint h = 0; h < kGroupParts; ++h) dot[j] += dots[((part + h) * kPanels + i) * kPanelDots + place];
      }
      [[unroll]] for (uint j = 0; j < kAtOnce; ++j) {
        float next = add_group(kIsWide != 0, is_fused, scale[j], float(dot[j]), sums[i]);
        sums[i] = first + j < groups ? next : sums[i];
      }
    }
  }
}

void store(MatmulTile rows, uint first_panel, uint element) {
  uint row = element / kPanelRows, lane = element % kPanelRows, call_row = rows.first_row + row;
  if (row >= rows.num_rows) return;
  float scale = x_scale(call_row);
  [[unroll]] for (uint i = 0; i < kPanels; ++i) {
    uint panel = first_panel + i, col = (kIsGated != 0 ? panel / 2 : panel) * kPanelRows + lane;
    if ((kIsGated != 0 && i % 2 == 1) || col >= p.out_cols) continue;
    precise float sum = sums[i] * scale, up = sums[min(i + 1, kPanels - 1)] * scale;
    if (kIsGated == 0) {
      store_product(call_row, col, sum);
    } else {
      store_gated(call_row, col, sum, up);
    }
  }
}

void main() {
  MatmulTile rows = row_tile(gl_WorkGroupID.x, kTileRows);
  uint first_panel = part_of_panels() * kPanels, element = gl_LocalInvocationID.x;
  if (rows.num_rows == 0 || first_panel >= p.num_panels) return;
  uint64_t weights = group_weights(rows);
  find_rows(rows);
  bool is_fused = kIsWide != 0 && has_fused_fma(p.fma_probe), has_element = element < rows.num_rows * kPanelRows;
  [[unroll]] for (uint i = 0; i < kPanels; ++i) sums[i] = 0.0;
  load_round(weights, first_panel, 0);
  for (uint first = 0; first < num_tiles(); first += kRoundTiles) {
    [[unroll]] for (uint j = 0; j < kSlotTiles; ++j) multiply_tile(j);
    load_round(weights, first_panel, first + kRoundTiles);
    barrier();
    if (has_element) add_groups(is_fused, first, element);
    barrier();
  }
  store(rows, first_panel, element);
}
