#version 460
// Products of f32, bf16 and e4m3 weights in plain arithmetic, for 1 to kRows rows.
//
// A workgroup takes 32 columns: two panels of 16. Its 256 invocations are 16 columns x 16 slots. A slot sums every 16th tile of
// k, ascending, for a column of either panel and all rows; then a column's 16 sums are added in ascending order. That is the
// order for any number of rows.
#include "kernels/vulkan/shaders/matmul_common.glsl"
#include "kernels/vulkan/shaders/matmul_finish.glsl"

layout(constant_id = 3) const uint kRows = 4;   // of a row tile
layout(constant_id = 4) const uint kSteps = 2;  // tiles of a slot that x is staged for at once

const uint kSlots = 16;
const uint kTileWords = kTileK / 4;       // four elements each
const uint kPieceWords = kTileWords / 2;  // of 16 bytes of weights
const uint kStageTiles = kSlots * kSteps;
const uint kStageWords = kStageTiles * kTileWords;  // of a row
const uint kXPieceWords = kTileWords * kPieceElements / kTileK;
const uint kSumRows = kRows < 4 ? kRows : 4;  // added up at once

shared vec4 stage[kRows * kStageWords];
shared float parts[kSumRows * kSlots * 2 * kPanelRows];

const uint kSums = 2 * kRows;
float sums[kSums];  // of a row's column of either panel, by the invocation's slot

// The i-th word of 16 bytes of a row of x.
vec4 x_words(uvec4 piece, uint i) {
#ifdef T_F32
  return uintBitsToFloat(piece);
#else
  uvec2 pairs = i == 0 ? piece.xy : piece.zw;
  return uintBitsToFloat(uvec4(pairs.x << 16, pairs.x & 0xffff0000u, pairs.y << 16, pairs.y & 0xffff0000u));
#endif
}

#ifdef W_E4M3
// The codes of a word, lowest byte first. Those with an exponent of 0 are multiples of 2^-9: 2^-6 above the least, less 2^-6.
vec4 e4m3_values(uint codes) {
  uvec4 code = (uvec4(codes) >> uvec4(0, 8, 16, 24)) & 0xffu;
  uvec4 exponent = (code >> 3) & 15u, sign = (code & 0x80u) << 24;
  vec4 magnitude = uintBitsToFloat(((max(exponent, uvec4(1)) + 120u) << 23) | ((code & 7u) << 20));
  magnitude -= mix(vec4(0.0), vec4(0.015625), equal(exponent, uvec4(0)));
  uvec4 bits = mix(floatBitsToUint(magnitude), uvec4(0x7fc00000u), equal(code & 0x7fu, uvec4(0x7f)));
  return uintBitsToFloat(bits | sign);
}
#endif

// The i-th word of 16 bytes of weights.
vec4 weight_words(uvec4 piece, uint i, float scale) {
#if defined(W_F32)
  return uintBitsToFloat(piece);
#elif defined(W_E4M3)
  return scale * e4m3_values(piece[i]);
#else
  return x_words(piece, i);
#endif
}

float add_products(vec4 w, vec4 x, float sum) {
  precise float added = fma(w.x, x.x, sum);
  added = fma(w.y, x.y, added);
  added = fma(w.z, x.z, added);
  added = fma(w.w, x.w, added);
  return added;
}

void stage_rows(MatmulTile rows, uint first_tile) {
  const uint kRowPieces = kStageTiles * kTileK / kPieceElements;
  for (uint i = gl_LocalInvocationID.x; i < kRows * kRowPieces; i += gl_WorkGroupSize.x) {
    uint row = i / kRowPieces, k = first_tile * kTileK + i % kRowPieces * kPieceElements;
    uvec4 piece = row < rows.num_rows ? x_piece(x_row_address(rows.first_row + row), k) : uvec4(0);
    for (uint j = 0; j < kXPieceWords; ++j) stage[i * kXPieceWords + j] = x_words(piece, j);
  }
}

struct TilePair {
  uvec4 pieces[4];  // two of the first panel's row of a tile, two of the second's
};

TilePair load_pair(uint64_t weights, uint panel, uint tile, uint column) {
  TilePair pair;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    U32x4 row = U32x4(tile_address(weights, panel + i, tile) + column * 32);
    pair.pieces[2 * i] = row.v[0];
    pair.pieces[2 * i + 1] = row.v[1];
  }
  return pair;
}

// Of a group of e4m3.
vec2 load_scales(uint64_t weights, uint panel, uint tile, uint column) {
#ifdef W_E4M3
  uint num_groups = (p.k + p.group_size - 1) / p.group_size, group = (tile * kTileK) >> findLSB(p.group_size);
  return vec2(F32(words_address(weights, panel, group, num_groups, 4)).v[column],
              F32(words_address(weights, panel + 1, group, num_groups, 4)).v[column]);
#else
  return vec2(1.0);
#endif
}

void add_tile(TilePair pair, vec2 scales, uint stage_tile) {
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    [[unroll]] for (uint j = 0; j < kPieceWords; ++j) {
      vec4 w0 = weight_words(pair.pieces[i], j, scales.x), w1 = weight_words(pair.pieces[2 + i], j, scales.y);
      [[unroll]] for (uint r = 0; r < kRows; ++r) {
        vec4 x = stage[r * kStageWords + stage_tile * kTileWords + i * kPieceWords + j];
        sums[2 * r] = add_products(w0, x, sums[2 * r]);
        sums[2 * r + 1] = add_products(w1, x, sums[2 * r + 1]);
      }
    }
  }
}

// The whole sum of a column (0 to 31 of the two panels) for one of the rows in `parts`.
float whole_sum(uint row, uint column) {
  precise float sum = 0.0;
  for (uint slot = 0; slot < kSlots; ++slot) sum += parts[(row * kSlots + slot) * 32 + column];
  return sum;
}

void finish_rows(MatmulTile rows, uint pair, uint first) {
  uint columns = kIsGated != 0 ? kPanelRows : 2 * kPanelRows;
  for (uint i = gl_LocalInvocationID.x; i < kSumRows * columns; i += gl_WorkGroupSize.x) {
    uint row = i / columns, column = i % columns, call_row = rows.first_row + first + row, col = pair * columns + column;
    if (first + row >= rows.num_rows || col >= p.out_cols) continue;
    float sum = whole_sum(row, column);
    if (kIsGated == 0) {
      store_product(call_row, col, sum);
    } else {
      store_gated(call_row, col, sum, whole_sum(row, column + kPanelRows));
    }
  }
}

void main() {
  MatmulTile rows = row_tile(gl_WorkGroupID.x, kRows);
  if (rows.num_rows == 0) return;
  uint pair = part_of_panels(), tiles = num_tiles();
  if (2 * pair >= p.num_panels) return;
  uint64_t weights = group_weights(rows);
  uint column = gl_LocalInvocationID.x % kPanelRows, slot = gl_LocalInvocationID.x / kPanelRows;
  [[unroll]] for (uint i = 0; i < kSums; ++i) sums[i] = 0.0;
  TilePair next = load_pair(weights, 2 * pair, min(slot, tiles - 1), column);
  for (uint first = 0; first < tiles; first += kStageTiles) {
    barrier();
    stage_rows(rows, first);
    barrier();
    for (uint i = slot; i < kStageTiles && first + i < tiles; i += kSlots) {
      TilePair pair_now = next;
      vec2 scales = load_scales(weights, 2 * pair, first + i, column);
      next = load_pair(weights, 2 * pair, min(first + i + kSlots, tiles - 1), column);
      add_tile(pair_now, scales, i);
    }
  }
  [[unroll]] for (uint first = 0; first < kRows; first += kSumRows) {
    barrier();
    [[unroll]] for (uint r = 0; r < kSumRows; ++r) {
      uint at = (r * kSlots + slot) * 32 + column;
      parts[at] = sums[2 * (first + r)];
      parts[at + kPanelRows] = sums[2 * (first + r) + 1];
    }
    barrier();
    finish_rows(rows, pair, first);
  }
}
