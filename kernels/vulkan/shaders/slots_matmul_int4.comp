#version 460
// Products of int4 weights in plain arithmetic, for 1 to kRows rows.
//
// A workgroup takes 32 columns: two panels of 16. Its 256 invocations are 16 columns x 16 slots; slots are kSlots parts of k x
// 16 / kSlots parts of the rows. Sums within a group are exact, so that it does not matter who adds them; groups are added in
// ascending order: by each invocation for itself where k is in one part, else by one for each element, from shared memory. A
// scale that is not wide has five significant bits, so that its products with a part of a group are exact, too.
#extension GL_EXT_integer_dot_product : require
#include "kernels/vulkan/shaders/matmul_common.glsl"
#include "kernels/vulkan/shaders/int4.glsl"
#include "kernels/vulkan/shaders/matmul_finish.glsl"

layout(constant_id = 3) const uint kRows = 4;         // of a row tile
layout(constant_id = 4) const uint kStageTiles = 16;  // that x is staged for at once: a multiple of kSlots and of groups
layout(constant_id = 5) const uint kIsWide = 0;
layout(constant_id = 6) const uint kSlots = 4;

const uint kRowSlots = 16 / kSlots;
const uint kOwnRows = kRows / kRowSlots;  // of an invocation
const uint kOwnSums = 2 * kOwnRows;       // of a column of either panel
const uint kColumns = 2 * kPanelRows;
const uint kElements = kRows * 2 * kPanelRows <= 256 ? 1 : kRows * 2 * kPanelRows / 256;
const uint kHalf = 32;  // codes: the smallest group

shared ivec4 stage[kRows * kStageTiles * 4];
shared int stage_sums[kRows * kStageTiles * 4];  // of the 16 codes of each
// Of a column's part of a tile: its dot products; not wide: scaled, as fp32.
shared int dots[kSlots == 1 ? 1 : 2 * kStageTiles * kRows * kColumns];

uint group_shift() { return findLSB(p.group_size); }
uint num_groups() { return p.k >> group_shift(); }

void stage_rows(MatmulTile rows, uint first_tile) {
  const uint kRowPieces = kStageTiles * 4;
  for (uint i = gl_LocalInvocationID.x; i < kRows * kRowPieces; i += gl_WorkGroupSize.x) {
    uint row = i / kRowPieces, k = first_tile * kTileK + i % kRowPieces * 16;
    ivec4 piece = ivec4(row < rows.num_rows ? x_piece(x_row_address(rows.first_row + row), k) : uvec4(0));
    const int kOnes = 0x01010101;
    stage[i] = piece;
    stage_sums[i] = dotPacked4x8EXT(piece.x, kOnes) + dotPacked4x8EXT(piece.y, kOnes) + dotPacked4x8EXT(piece.z, kOnes) +
                    dotPacked4x8EXT(piece.w, kOnes);
  }
}

// 32 codes of a column, 0 to 15 each, times 32 of x, of which `x_sum` is the sum; less the zero point's part.
int dot_half(uvec4 codes, uint zero_point, ivec4 x0, ivec4 x1, int x_sum) {
  uvec4 low = codes & 0x0f0f0f0fu, high = (codes >> 4) & 0x0f0f0f0fu;
  int sum = dotPacked4x8EXT(int(low.x), x0.x) + dotPacked4x8EXT(int(high.x), x0.y);
  sum += dotPacked4x8EXT(int(low.y), x0.z) + dotPacked4x8EXT(int(high.y), x0.w);
  sum += dotPacked4x8EXT(int(low.z), x1.x) + dotPacked4x8EXT(int(high.z), x1.y);
  sum += dotPacked4x8EXT(int(low.w), x1.z) + dotPacked4x8EXT(int(high.w), x1.w);
  return sum - int(zero_point) * x_sum;
}

int acc[kOwnSums];     // of the group, or the part of it, in progress
float sums[kOwnSums];  // of the groups before it, where k is in one part

// What an invocation works on.
struct Share {
  uint64_t weights;
  uint pair;  // of panels
  uint column, slot, row_slot;
  bool is_fused;
};

// The panel's group ends with what is in `acc`.
void end_group(Share share, uint i, GroupWord word) {
  [[unroll]] for (uint r = 0; r < kOwnRows; ++r) {
    sums[2 * r + i] = add_group(kIsWide != 0, share.is_fused, word.scale, float(acc[2 * r + i]), sums[2 * r + i]);
    acc[2 * r + i] = 0;
  }
}

// Parts of a tile that lie in one group: the tile, or its halves.
uint parts_of_tile() { return p.group_size == kHalf ? 2 : 1; }

// Hands on what is in `acc` of a panel's part of a staged tile.
void end_part(Share share, uint i, uint part, GroupWord word) {
  [[unroll]] for (uint r = 0; r < kOwnRows; ++r) {
    uint row = share.row_slot * kOwnRows + r;
    int dot = kIsWide != 0 ? acc[2 * r + i] : floatBitsToInt(word.scale * float(acc[2 * r + i]));
    dots[(part * kRows + row) * kColumns + i * kPanelRows + share.column] = dot;
    acc[2 * r + i] = 0;
  }
}

// A column's 64 codes of a tile of both panels, and the words of the groups that their halves lie in.
struct TileCodes {
  uvec4 halves[4];  // two of the first panel, two of the second
  GroupWord words[4];
};

TileCodes load_codes(Share share, uint tile) {
  TileCodes loaded;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    uint panel = 2 * share.pair + i;
    U32x4 codes = U32x4(tile_address(share.weights, panel, tile) + share.column * 32);
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      uint group = min((tile * kTileK + h * kHalf) >> group_shift(), num_groups() - 1);
      loaded.halves[2 * i + h] = codes.v[h];
      loaded.words[2 * i + h] = load_group_word(share.weights, panel, group, num_groups(), share.column, kIsWide != 0);
    }
  }
  return loaded;
}

void add_tile(Share share, TileCodes codes, uint tile, uint stage_tile) {
  [[unroll]] for (uint h = 0; h < 2; ++h) {
    uint end = tile * kTileK + (h + 1) * kHalf;
    bool is_there = end <= p.k;
    [[unroll]] for (uint r = 0; r < kOwnRows; ++r) {
      uint at = ((share.row_slot * kOwnRows + r) * kStageTiles + stage_tile) * 4 + 2 * h;
      ivec4 x0 = stage[at], x1 = stage[at + 1];
      int x_sum = stage_sums[at] + stage_sums[at + 1];
      [[unroll]] for (uint i = 0; i < 2; ++i) {
        GroupWord word = codes.words[2 * i + h];
        if (is_there) acc[2 * r + i] += dot_half(codes.halves[2 * i + h], word.zero_point, x0, x1, x_sum);
      }
    }
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      GroupWord word = codes.words[2 * i + h];
      if (kSlots == 1) {
        if (is_there && end % p.group_size == 0) end_group(share, i, word);
      } else if (h == 1 || parts_of_tile() == 2) {
        end_part(share, i, parts_of_tile() == 2 ? 2 * stage_tile + h : stage_tile, word);
      }
    }
  }
}

// What a column's group `g` of the staged tiles comes to for a row: its scaled dot products.
float scaled_group(uint g, uint parts, uint row, uint column) {
  precise float group = 0.0;
  for (uint i = 0; i < parts; ++i) group += intBitsToFloat(dots[((g * parts + i) * kRows + row) * kColumns + column]);
  return group;
}

// Adds the groups of the staged tiles to an element's sum: four at once from memory, one by one to the sum.
void add_scaled_groups(uint groups, uint parts, uint row, uint column, inout float sum) {
  for (uint first = 0; first < groups; first += 4) {
    float group[4];
    [[unroll]] for (uint i = 0; i < 4; ++i) group[i] = first + i < groups ? scaled_group(first + i, parts, row, column) : 0.0;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      precise float next = sum + group[i];
      if (first + i < groups) sum = next;
    }
  }
}

void add_groups(Share share, uint first_tile, uint row, uint column, inout float sum) {
  uint parts = max(p.group_size / kTileK, 1), first_group = (first_tile * kTileK) >> group_shift();
  uint groups = min(kStageTiles * parts_of_tile() / parts, num_groups() - first_group);
  if (kIsWide == 0) {
    add_scaled_groups(groups, parts, row, column, sum);
    return;
  }
  for (uint g = 0; g < groups; ++g) {
    int dot = 0;
    for (uint i = 0; i < parts; ++i) dot += dots[((g * parts + i) * kRows + row) * kColumns + column];
    GroupWord word = load_group_word(share.weights, 2 * share.pair + column / kPanelRows, first_group + g, num_groups(),
                                     column % kPanelRows, true);
    sum = add_group(true, share.is_fused, word.scale, float(dot), sum);
  }
}

// The sums of a column of both panels, of a row of the tile.
void finish(MatmulTile rows, uint pair, uint column, uint row, float first, float second) {
  if (row >= rows.num_rows) return;
  uint call_row = rows.first_row + row;
  precise float scaled_first = first * x_scale(call_row), scaled_second = second * x_scale(call_row);
  if (kIsGated != 0) {
    uint col = pair * kPanelRows + column;
    if (col < p.out_cols) store_gated(call_row, col, scaled_first, scaled_second);
    return;
  }
  uint col = pair * kColumns + column;
  if (col < p.out_cols) store_product(call_row, col, scaled_first);
  if (col + kPanelRows < p.out_cols) store_product(call_row, col + kPanelRows, scaled_second);
}

void main() {
  MatmulTile rows = row_tile(gl_WorkGroupID.x, kRows);
  if (rows.num_rows == 0) return;
  uint tiles = num_tiles(), place = gl_LocalInvocationID.x / kPanelRows;
  Share share = Share(group_weights(rows), part_of_panels(), gl_LocalInvocationID.x % kPanelRows, place % kSlots,
                      place / kSlots, kIsWide != 0 && has_fused_fma(p.fma_probe));
  if (2 * share.pair >= p.num_panels) return;
  [[unroll]] for (uint i = 0; i < kOwnSums; ++i) {
    acc[i] = 0;
    sums[i] = 0.0;
  }
  // Where k is in several parts, an invocation adds up the groups of kElements elements of rows x columns.
  float element_sums[kElements];
  [[unroll]] for (uint e = 0; e < kElements; ++e) element_sums[e] = 0.0;
  TileCodes next = load_codes(share, min(share.slot, tiles - 1));
  for (uint first = 0; first < tiles; first += kStageTiles) {
    barrier();
    stage_rows(rows, first);
    barrier();
    for (uint i = share.slot; i < kStageTiles && first + i < tiles; i += kSlots) {
      TileCodes codes = next;
      next = load_codes(share, min(first + i + kSlots, tiles - 1));
      add_tile(share, codes, first + i, i);
    }
    if (kSlots == 1) continue;
    barrier();
    [[unroll]] for (uint e = 0; e < kElements; ++e) {
      uint element = e * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
      if (element < kRows * kColumns) add_groups(share, first, element / kColumns, element % kColumns, element_sums[e]);
    }
  }
  if (kSlots > 1) {
    barrier();
    [[unroll]] for (uint e = 0; e < kElements; ++e) {
      uint element = e * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
      if (element < kRows * kColumns) dots[element] = floatBitsToInt(element_sums[e]);
    }
    barrier();
    if (place >= kRows) return;
    uint at = place * kColumns + share.column;
    finish(rows, share.pair, share.column, place, intBitsToFloat(dots[at]), intBitsToFloat(dots[at + kPanelRows]));
    return;
  }
  [[unroll]] for (uint r = 0; r < kOwnRows; ++r) {
    finish(rows, share.pair, share.column, share.row_slot * kOwnRows + r, sums[2 * r], sums[2 * r + 1]);
  }
}
