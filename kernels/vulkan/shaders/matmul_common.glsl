// What the kernels of products share: where things are, behind common.glsl. The format of the weights is W_F32, W_BF16, W_INT8,
// W_INT4 or W_E4M3; kernels/vulkan/pack_weights.h explains panels and tiles.
//
// Workgroup (x, y) multiplies the rows of tiles[x] by the y-th part of the panels.

#include "kernels/vulkan/shaders/common.glsl"
#include "kernels/vulkan/shaders/push_matmul.h"

layout(push_constant, scalar) uniform Push { MatmulPush p; };
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer MatmulTiles { MatmulTile v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer U32x2 { uvec2 v[]; };

// Specialisation constants of all: 1 and 2. Each kernel counts on from 3.
layout(constant_id = 1) const uint kHasPieces = 1;  // whether rows of x begin and end at multiples of 16 bytes
layout(constant_id = 2) const uint kIsGated = 0;

const uint kTileBytes = 512;
const uint kPanelRows = 16;
#if defined(W_F32)
const uint kTileK = 8;
#elif defined(W_BF16)
const uint kTileK = 16;
#elif defined(W_INT4)
const uint kTileK = 64;
#else
const uint kTileK = 32;
#endif

uint num_tiles() { return (p.k + kTileK - 1) / kTileK; }
// The i-th tile, of up to `size` rows. Of one group it is known without a look at memory.
MatmulTile row_tile(uint i, uint size) {
  if (p.tiles == 0) return MatmulTile(0, i * size, min(size, p.num_rows - i * size));
  MatmulTile tile = MatmulTiles(p.tiles).v[i];
  if (p.tiles_are_runs == 0) return tile;
  uint before = i - tile.first_row;  // rows of the run
  return MatmulTile(tile.group, i, before % size == 0 ? min(size, tile.num_rows - before) : 0);
}
uint part_of_panels() { return gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y; }
uint64_t group_weights(MatmulTile rows) { return p.tiles == 0 ? p.weights : U64(p.weights).v[rows.group]; }

uint64_t tile_address(uint64_t weights, uint panel, uint tile) {
  return weights + (uint64_t(panel) * num_tiles() + tile) * kTileBytes;
}
// The first of a panel's 16 words of scale group `group`, of `num_groups`.
uint64_t words_address(uint64_t weights, uint panel, uint group, uint num_groups, uint word_bytes) {
  return tile_address(weights, p.num_panels, 0) + (uint64_t(panel) * num_groups + group) * (kPanelRows * word_bytes);
}

uint x_row(uint row) { return p.row_idx == 0 ? row : uint(I32(p.row_idx).v[row]); }
#if defined(W_INT8) || defined(W_INT4)
const uint kBytesOfX = 1;
float x_scale(uint row) { return F32(p.x_scales).v[x_row(row)]; }
#else
const uint kBytesOfX = kBytesOfT;
#endif
uint64_t x_row_address(uint row) { return p.x + uint64_t(x_row(row)) * p.x_stride * kBytesOfX; }

const uint kPieceElements = 16 / kBytesOfX;

// 16 bytes of a row of x from element k on, a multiple of kPieceElements; elements behind the last are zeros.
uvec4 x_piece(uint64_t row, uint k) {
  if (k >= p.k) return uvec4(0);
  if (kHasPieces != 0) return U32x4(row + k * kBytesOfX).v[0];
  uvec4 piece = uvec4(0);
  for (uint i = 0; i < 4; ++i) {
    uint word = 0;
    for (uint j = 0; j < kPieceElements / 4; ++j) {
      uint at = k + i * (kPieceElements / 4) + j;
      if (at >= p.k) break;
      uint64_t address = row + at * kBytesOfX;
      if (kBytesOfX == 1) word |= uint(U8(address).v[0]) << (8 * j);
      if (kBytesOfX == 2) word |= uint(U16(address).v[0]) << (16 * j);
      if (kBytesOfX == 4) word = U32(address).v[0];
    }
    piece[i] = word;
  }
  return piece;
}
