#version 460
// Products of int4 weights in plain arithmetic, for 1 to kRows rows.
//
// A workgroup takes 32 columns: two panels of 16. Its 256 invocations are 16 columns x 16 slots; slots are kSlots parts of k x
// 16 / kSlots parts of the rows. Sums within a group are exact, so that it does not matter who adds them; groups are added in
// ascending order: by each invocation for itself where k is in one part, else by one for each element, from shared memory.
#extension GL_EXT_integer_dot_product : require
#include "kernels/vulkan/shaders/matmul_common.glsl"
#include "kernels/vulkan/shaders/int4.glsl"
#include "kernels/vulkan/shaders/matmul_finish.glsl"

layout(constant_id = 3) const uint kRows = 4;         // of a row tile
layout(constant_id = 4) const uint kStageTiles = 16;  // that x is staged for at once: a multiple of kSlots and of groups
layout(constant_id = 5) const uint kIsWide = 0;
layout(constant_id = 6) const uint kSlots = 4;

const uint kRowSlots = 16 / kSlots;
const uint kOwnRows = kRows / kRowSlots;  // of an invocation; 1 where kSlots > 1
const uint kOwnSums = 2 * kOwnRows;       // of a column of either panel
const uint kColumns = 2 * kPanelRows;
const uint kHalf = 32;  // codes: the smallest group

shared ivec4 stage[kRows * kStageTiles * 4];
shared int dots[kSlots == 1 ? 1 : 2 * kStageTiles * kRows * kColumns];  // of the half rows of tiles

uint group_shift() { return findLSB(p.group_size); }
uint num_groups() { return p.k >> group_shift(); }

void stage_rows(MatmulTile rows, uint first_tile) {
  const uint kRowPieces = kStageTiles * 4;
  for (uint i = gl_LocalInvocationID.x; i < kRows * kRowPieces; i += gl_WorkGroupSize.x) {
    uint row = i / kRowPieces, k = first_tile * kTileK + i % kRowPieces * 16;
    stage[i] = ivec4(row < rows.num_rows ? x_piece(x_row_address(rows.first_row + row), k) : uvec4(0));
  }
}

// 32 codes of a column, which begin at 32 bytes of staged x.
int dot_half(uvec4 codes, uint zero_point, uint stage_at) {
  int sum = 0;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    ivec4 x0 = stage[stage_at], x1 = stage[stage_at + 1];
    ivec4 x = i == 0 ? x0 : x1;
    uint low = codes[2 * i], high = codes[2 * i + 1];
    sum += dotPacked4x8EXT(int(first_codes(low, zero_point)), x.x) + dotPacked4x8EXT(int(last_codes(low, zero_point)), x.y);
    sum += dotPacked4x8EXT(int(first_codes(high, zero_point)), x.z) + dotPacked4x8EXT(int(last_codes(high, zero_point)), x.w);
  }
  return sum;
}

int acc[kOwnSums];     // of the group in progress
float sums[kOwnSums];  // of the groups before it

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

// One tile of both panels.
void add_tile(Share share, uint tile, uint stage_tile) {
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    uint panel = 2 * share.pair + i;
    U32x4 codes = U32x4(tile_address(share.weights, panel, tile) + share.column * 32);
    uvec4 halves[2] = {codes.v[0], codes.v[1]};
    for (uint h = 0; h < 2; ++h) {
      uint end = tile * kTileK + (h + 1) * kHalf, group = (end - 1) >> group_shift();
      if (end > p.k) break;
      GroupWord word = load_group_word(share.weights, panel, group, num_groups(), share.column, kIsWide != 0);
      uvec4 half_codes = h == 0 ? halves[0] : halves[1];
      [[unroll]] for (uint r = 0; r < kOwnRows; ++r) {
        uint row = share.row_slot * kOwnRows + r;
        acc[2 * r + i] += dot_half(half_codes, word.zero_point, (row * kStageTiles + stage_tile) * 4 + 2 * h);
      }
      if (kSlots == 1) {
        if (end % p.group_size == 0) end_group(share, i, word);
      } else {
        dots[((2 * stage_tile + h) * kRows + share.row_slot) * kColumns + i * kPanelRows + share.column] = acc[i];
        acc[i] = 0;
      }
    }
  }
}

// Adds the groups of the staged tiles to the sum of the invocation's element.
void add_groups(Share share, uint first_tile, uint row, uint column, inout float sum) {
  uint parts = p.group_size / kHalf, first_group = (first_tile * kTileK) >> group_shift();
  for (uint g = 0; g < 2 * kStageTiles / parts && first_group + g < num_groups(); ++g) {
    int dot = 0;
    for (uint i = 0; i < parts; ++i) dot += dots[((g * parts + i) * kRows + row) * kColumns + column];
    GroupWord word = load_group_word(share.weights, 2 * share.pair + column / kPanelRows, first_group + g, num_groups(),
                                     column % kPanelRows, kIsWide != 0);
    sum = add_group(kIsWide != 0, share.is_fused, word.scale, float(dot), sum);
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
  MatmulTile rows = row_tile();
  if (rows.num_rows == 0) return;
  uint tiles = num_tiles(), place = gl_LocalInvocationID.x / kPanelRows;
  Share share = Share(group_weights(rows), part_of_panels(), gl_LocalInvocationID.x % kPanelRows, place % kSlots,
                      place / kSlots, kIsWide != 0 && has_fused_fma(p.fma_probe));
  if (2 * share.pair >= p.num_panels) return;
  [[unroll]] for (uint i = 0; i < kOwnSums; ++i) {
    acc[i] = 0;
    sums[i] = 0.0;
  }
  // The element whose groups this invocation adds where k is in several parts.
  uint row = place;
  for (uint first = 0; first < tiles; first += kStageTiles) {
    barrier();
    stage_rows(rows, first);
    barrier();
    for (uint i = share.slot; i < kStageTiles && first + i < tiles; i += kSlots) add_tile(share, first + i, i);
    if (kSlots == 1) continue;
    barrier();
    if (row < kRows) {
      [[unroll]] for (uint i = 0; i < kOwnSums; ++i) add_groups(share, first, row, share.column + i * kPanelRows, sums[i]);
    }
  }
  if (kSlots > 1 && row >= kRows) return;
  uint first_row = kSlots > 1 ? row : share.row_slot * kOwnRows;
  [[unroll]] for (uint r = 0; r < kOwnRows; ++r) {
    finish(rows, share.pair, share.column, first_row + r, sums[2 * r], sums[2 * r + 1]);
  }
}
