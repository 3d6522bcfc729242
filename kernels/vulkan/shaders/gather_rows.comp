#version 460
// gather_rows of ops.h, and embed from a table of the run's dtype: an invocation a unit of kUnitBytes.
#include "common.glsl"
#include "push_rows.h"

layout(constant_id = 1) const uint kUnitBytes = 1;  // 16, 4, 2 or 1: what addresses, rows and strides are multiples of

layout(push_constant, scalar) uniform Push { GatherRowsPush p; };

void main() {
  uint element = uint(invocation_element());
  uint row = element / p.units_per_row;
  if (row >= p.rows) return;
  uint unit = element % p.units_per_row;
  uint source = U32(p.row_idx + uint64_t(row) * 4).v[0];
  uint64_t from = p.x + source * p.x_row_bytes + uint64_t(unit) * kUnitBytes;
  uint64_t to = p.result + row * p.result_row_bytes + uint64_t(unit) * kUnitBytes;
  switch (kUnitBytes) {
    case 16: U32x4(to).v[0] = U32x4(from).v[0]; break;
    case 4: U32(to).v[0] = U32(from).v[0]; break;
    case 2: U16(to).v[0] = U16(from).v[0]; break;
    default: U8(to).v[0] = U8(from).v[0];
  }
  if (p.scales != 0 && unit == 0) {
    U32(p.result_scales + uint64_t(row) * 4).v[0] = U32(p.scales + uint64_t(source) * 4).v[0];
  }
}
