#version 460
// embed of ops.h from a table of the other dtype: an invocation an element.
#include "common.glsl"
#include "push_rows.h"

layout(push_constant, scalar) uniform Push { EmbedPush p; };

void main() {
  uint element = uint(invocation_element());
  uint row = element / p.cols;
  if (row >= p.rows) return;
  uint col = element % p.cols;
  uint64_t from = uint64_t(U32(p.ids + uint64_t(row) * 4).v[0]) * p.table_stride + col;
#ifdef T_BF16
  float x = F32(p.table + from * 4).v[0];
#else
  float x = from_bf16(U16(p.table + from * 2).v[0]);
#endif
  store_t(p.result, uint64_t(row) * p.result_stride + col, x);
}
