#version 460
// kv_append of ops.h: a workgroup copies the keys and the values of one row, in pieces of PIECE_BYTES.
#include "common.glsl"
#include "push_attention.h"

layout(push_constant, scalar) uniform Push { KvAppendPush p; };

layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer KvPlaces { KvPlace v[]; };

#if PIECE_BYTES == 16
#define PIECE U32x4
#elif PIECE_BYTES == 4
#define PIECE U32
#else
#define PIECE U16
#endif

void main() {
  uint index = workgroup_row();
  if (index >= p.num_rows) return;
  KvPlace to = KvPlaces(p.places).v[index];
  uint head_pieces = p.head_bytes / PIECE_BYTES;
  uint row_pieces = p.num_kv_heads * head_pieces;
  for (uint i = gl_LocalInvocationID.x; i < 2 * row_pieces; i += gl_WorkGroupSize.x) {
    bool is_key = i < row_pieces;
    uint piece = is_key ? i : i - row_pieces;
    uint head = piece / head_pieces;
    uint64_t row = is_key ? p.k + uint64_t(to.row) * p.k_stride : p.v + uint64_t(to.row) * p.v_stride;
    uint64_t place = (uint64_t(to.place) + head * p.block_tokens) * p.head_bytes + (piece - head * head_pieces) * PIECE_BYTES;
    PIECE((is_key ? p.keys : p.values) + place).v[0] = PIECE(row + piece * PIECE_BYTES).v[0];
  }
}
