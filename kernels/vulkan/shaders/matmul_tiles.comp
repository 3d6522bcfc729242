#version 460
// The tiles of a grouped product whose counts only the device knows, by one subgroup: as many groups at once as it has
// invocations. Entries behind the last tile have no rows.
#include "kernels/vulkan/shaders/common.glsl"
#include "kernels/vulkan/shaders/push_matmul.h"

layout(push_constant, scalar) uniform Push { MatmulTilesPush p; };
layout(buffer_reference, scalar, buffer_reference_align = 4) writeonly buffer MatmulTiles { MatmulTile v[]; };

void main() {
  MatmulTiles tiles = MatmulTiles(p.tiles);
  uint tiles_before = 0, rows_before = 0;
  for (uint first = 0; first < p.num_groups; first += gl_SubgroupSize) {
    uint group = first + gl_SubgroupInvocationID;
    uint num_rows = group < p.num_groups ? uint(I32(p.counts).v[group]) : 0;
    uint num_tiles = (num_rows + p.tile_rows - 1) / p.tile_rows;
    uint tile = tiles_before + subgroupExclusiveAdd(num_tiles), row = rows_before + subgroupExclusiveAdd(num_rows);
    for (uint i = 0; i < num_tiles; ++i) {
      uint done = i * p.tile_rows;
      tiles.v[tile + i] = MatmulTile(group, row + done, min(p.tile_rows, num_rows - done));
    }
    tiles_before = subgroupMax(tile + num_tiles);
    rows_before = subgroupMax(row + num_rows);
  }
  for (uint i = tiles_before + gl_SubgroupInvocationID; i < p.max_tiles; i += gl_SubgroupSize)
    tiles.v[i] = MatmulTile(0, 0, 0);
}
