#version 460
// combine of ops.h: an invocation a pack.
#include "common.glsl"
#include "pack.glsl"
#include "push_rows.h"

layout(push_constant, scalar) uniform Push { CombinePush p; };

void main() {
  uint packs_per_row = (p.cols + kPack - 1) / kPack;
  uint pack = uint(invocation_element());
  uint row = pack / packs_per_row;
  if (row >= p.rows) return;
  uint first = pack % packs_per_row * kPack;
  Pack sum;
  [[unroll]] for (uint i = 0; i < kPack; ++i) sum.v[i] = 0.0;
  for (uint k = 0; k < p.num_slots; ++k) {
    uint64_t slot = uint64_t(row) * p.num_slots + k;
    uint64_t slot_row = p.slot_rows != 0 ? U64(p.slot_rows + slot * 8).v[0]
                                         : p.x + uint64_t(I32(p.slot_row_idx + slot * 4).v[0]) * p.x_stride * kBytesOfT;
    if (slot_row == 0) break;
    float weight = F32(p.slot_weights + slot * 4).v[0];
    Pack x = load_pack(slot_row, first, p.cols);
    [[unroll]] for (uint i = 0; i < kPack; ++i) sum.v[i] = plus_product(sum.v[i], weight, x.v[i]);
  }
  store_pack(p.result + uint64_t(row) * p.result_stride * kBytesOfT, first, p.cols, sum);
}
