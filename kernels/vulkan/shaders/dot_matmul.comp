#version 460
// Products of int8 and int4 weights in packed dot products, for 1 to kRows rows.
//
// The 256 invocations of a workgroup are 16 columns x kSlots slots x 16 / kSlots runs of kPanels panels. A slot takes every
// kSlots-th tile of k. An invocation asks for the weights of kSlotTiles tiles at once, a round, and then row by row for what
// they multiply. Sums of int8, and of int4 within a group, are exact, so that it does not matter who adds them. Groups of int4
// go through shared memory to one invocation for each element, which adds them in ascending order. A scale that is not wide has
// five significant bits, so that its products with a part of a group are exact, too.
#extension GL_EXT_integer_dot_product : require
#include "kernels/vulkan/shaders/matmul_common.glsl"
#ifdef W_INT4
#include "kernels/vulkan/shaders/int4.glsl"
#endif
#include "kernels/vulkan/shaders/matmul_finish.glsl"

layout(constant_id = 3) const uint kRows = 4;        // of a row tile
layout(constant_id = 4) const uint kPanels = 2;      // 1, or 2: gates and ups if the weights are gated
layout(constant_id = 5) const uint kSlotTiles = 2;   // of a round
layout(constant_id = 6) const uint kGroupSize = 64;  // of int4: 32 to 256
layout(constant_id = 7) const uint kIsWide = 0;
layout(constant_id = 8) const uint kSlots = 16;

const uint kRoundTiles = kSlots * kSlotTiles;
const uint kColumns = 16 / kSlots * kPanels * kPanelRows;
const uint kElements = kRows * kColumns;  // 256 at most: each is an invocation's, in the end
const uint kOwnTiles = kPanels * kSlotTiles;
const uint kXPieces = kTileK / 16;  // of a tile

#ifdef W_INT8
const uint kParts = kSlots;
#else
const uint kTileParts = kGroupSize < kTileK ? 2 : 1;  // that lie in one group
const uint kGroupParts = kGroupSize < kTileK ? 1 : kGroupSize / kTileK;
const uint kParts = kRoundTiles * kTileParts;
#endif
// Of every part of k and element: its dot product; of int4 that is not wide: scaled, as fp32.
shared int dots[kParts * kElements];

// What an invocation works on.
struct Share {
  uint64_t weights;
  uint first_panel;   // of the workgroup
  uint first_column;  // of the workgroup's, of the invocation's run of panels
  uint column, slot;
};

uvec4 pieces[2 * kOwnTiles];     // of the round's weights: 32 bytes of every tile
uvec4 x[kSlotTiles * kXPieces];  // of a row, for them
#ifdef W_INT4
GroupWord words[kOwnTiles * kTileParts];
#endif

uint own_tile(Share share, uint first_tile, uint j) { return first_tile + j * kSlots + share.slot; }

// Tiles behind the last are read as the last: their x is zeros.
void load_weights(Share share, uint first_tile) {
  [[unroll]] for (uint i = 0; i < kPanels; ++i) {
    [[unroll]] for (uint j = 0; j < kSlotTiles; ++j) {
      uint tile = min(own_tile(share, first_tile, j), num_tiles() - 1);
      uint panel = min(share.first_panel + share.first_column / kPanelRows + i, p.num_panels - 1);
      U32x4 row = U32x4(tile_address(share.weights, panel, tile) + share.column * 32);
      [[unroll]] for (uint h = 0; h < 2; ++h) pieces[(i * kSlotTiles + j) * 2 + h] = row.v[h];
#ifdef W_INT4
      uint groups = p.k / kGroupSize;
      [[unroll]] for (uint h = 0; h < kTileParts; ++h) {
        uint group = min((tile * kTileK + h * 32) / kGroupSize, groups - 1);
        words[(i * kSlotTiles + j) * kTileParts + h] =
            load_group_word(share.weights, panel, group, groups, share.column, kIsWide != 0);
      }
#endif
    }
  }
}

int dot_words(uvec4 w, uvec4 x) {
  return dotPacked4x8EXT(int(w.x), int(x.x)) + dotPacked4x8EXT(int(w.y), int(x.y)) + dotPacked4x8EXT(int(w.z), int(x.z)) +
         dotPacked4x8EXT(int(w.w), int(x.w));
}

#ifdef W_INT8
void multiply_tiles(Share share, uint first_tile, uint r) {
  [[unroll]] for (uint i = 0; i < kPanels; ++i) {
    uint at = share.slot * kElements + r * kColumns + share.first_column + i * kPanelRows + share.column;
    int dot = first_tile == 0 ? 0 : dots[at];
    [[unroll]] for (uint j = 0; j < 2 * kSlotTiles; ++j) dot += dot_words(pieces[i * 2 * kSlotTiles + j], x[j]);
    dots[at] = dot;
  }
}
#else
// The i-th 16 codes of tile `at` of the round, less their zero point, times 16 of x.
int dot_codes(uint at, uint i, uvec4 of_x) {
  uvec2 codes = i % 2 == 0 ? pieces[2 * at + i / 2].xy : pieces[2 * at + i / 2].zw;
  uint zero_point = words[at * kTileParts + (i / 2 < kTileParts ? i / 2 : 0)].zero_point;
  return dot_words(uvec4(first_codes(codes.x, zero_point), last_codes(codes.x, zero_point),
                         first_codes(codes.y, zero_point), last_codes(codes.y, zero_point)),
                   of_x);
}

int handed_on(int dot, float scale) { return kIsWide != 0 ? dot : floatBitsToInt(scale * float(dot)); }

void multiply_tiles(Share share, uint first_tile, uint r) {
  [[unroll]] for (uint at = 0; at < kOwnTiles; ++at) {
    uint j = at % kSlotTiles, column = share.first_column + at / kSlotTiles * kPanelRows + share.column;
    int low = dot_codes(at, 0, x[4 * j]) + dot_codes(at, 1, x[4 * j + 1]);
    int high = dot_codes(at, 2, x[4 * j + 2]) + dot_codes(at, 3, x[4 * j + 3]);
    uint to = (j * kSlots + share.slot) * kTileParts * kElements + r * kColumns + column;
    dots[to] = handed_on(kTileParts == 1 ? low + high : low, words[at * kTileParts].scale);
    if (kTileParts == 2) dots[to + kElements] = handed_on(high, words[at * kTileParts + kTileParts - 1].scale);
  }
}
#endif

// The round's tiles times a row.
void multiply_row(Share share, uint first_tile, uint r, uint64_t row) {
  [[unroll]] for (uint i = 0; i < kSlotTiles * kXPieces; ++i) {
    x[i] = x_piece(row, own_tile(share, first_tile, i / kXPieces) * kTileK + i % kXPieces * 16);
  }
  multiply_tiles(share, first_tile, r);
}

#ifdef W_INT4
// What the round's group `g` comes to for an element; scaled if it is not wide.
float group_dot(uint g, uint element) {
  int dot = 0;
  precise float scaled = 0.0;
  [[unroll]] for (uint i = 0; i < kGroupParts; ++i) {
    int part = dots[(g * kGroupParts + i) * kElements + element];
    if (kIsWide != 0) {
      dot += part;
    } else {
      scaled += intBitsToFloat(part);
    }
  }
  return kIsWide != 0 ? float(dot) : scaled;
}

// Adds the round's groups to an element's sum: some at once from memory, one by one to the sum.
void add_groups(Share share, bool is_fused, uint first_tile, uint element, inout float sum) {
  const uint kAtOnce = 8;
  uint all_groups = p.k / kGroupSize, first_group = first_tile * kTileK / kGroupSize;
  uint groups = min(kParts / kGroupParts, all_groups - first_group), column = element % kColumns;
  for (uint first = 0; first < groups; first += kAtOnce) {
    float dot[kAtOnce];
    [[unroll]] for (uint i = 0; i < kAtOnce; ++i) dot[i] = group_dot(min(first + i, groups - 1), element);
    [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
      precise float next = sum + dot[i];
      if (kIsWide != 0) {
        uint group = min(first_group + first + i, all_groups - 1);
        uint panel = min(share.first_panel + column / kPanelRows, p.num_panels - 1);
        GroupWord word = load_group_word(share.weights, panel, group, all_groups, column % kPanelRows, true);
        next = add_group(true, is_fused, word.scale, dot[i], sum);
      }
      sum = first + i < groups ? next : sum;
    }
  }
}
#endif

void store(MatmulTile rows, uint first_panel, uint element, float sum) {
  uint row = element / kColumns, column = element % kColumns, call_row = rows.first_row + row;
  if (kIsGated == 0) {
    uint col = first_panel * kPanelRows + column;
    if (row < rows.num_rows && col < p.out_cols) store_product(call_row, col, sum);
    return;
  }
  barrier();
  if (row < kRows) dots[element] = floatBitsToInt(sum);
  barrier();
  uint col = (first_panel + column / kPanelRows) / 2 * kPanelRows + column % kPanelRows;
  if (row >= rows.num_rows || column / kPanelRows % 2 == 1 || col >= p.out_cols) return;
  store_gated(call_row, col, sum, intBitsToFloat(dots[element + kPanelRows]));
}

void main() {
  MatmulTile rows = row_tile(gl_WorkGroupID.x, kRows);
  uint place = gl_LocalInvocationID.x / kPanelRows;
  Share share = Share(0, part_of_panels() * (kColumns / kPanelRows), place / kSlots * kPanels * kPanelRows,
                      gl_LocalInvocationID.x % kPanelRows, place % kSlots);
  if (rows.num_rows == 0 || share.first_panel >= p.num_panels) return;
  uint64_t next_row = x_row_address(rows.first_row);
  share.weights = group_weights(rows);
  uint element = gl_LocalInvocationID.x;
  bool has_element = element < rows.num_rows * kColumns;
  float scale = has_element ? x_scale(rows.first_row + element / kColumns) : 0.0;
#ifdef W_INT8
  uint panel = min(share.first_panel + element % kColumns / kPanelRows, p.num_panels - 1);
  float column_scale = has_element ? F32(words_address(share.weights, panel, 0, 1, 4)).v[element % kPanelRows] : 0.0;
#else
  bool is_fused = kIsWide != 0 && has_fused_fma(p.fma_probe);
  float sum = 0.0;
#endif
  for (uint first = 0; first < num_tiles(); first += kRoundTiles) {
    load_weights(share, first);
    for (uint r = 0; r < rows.num_rows; ++r) {
      uint64_t row = next_row;
      next_row = x_row_address(rows.first_row + (r + 1 < rows.num_rows ? r + 1 : 0));
      multiply_row(share, first, r, row);
    }
#ifdef W_INT4
    barrier();
    if (has_element) add_groups(share, is_fused, first, element, sum);
    barrier();
#endif
  }
#ifdef W_INT8
  barrier();
  int dot = 0;
  if (has_element) {
    for (uint slot = 0; slot < kSlots; ++slot) dot += dots[slot * kElements + element];
  }
  precise float product = float(dot) * column_scale * scale;
#else
  precise float product = sum * scale;
#endif
  store(rows, share.first_panel, element, product);
}
