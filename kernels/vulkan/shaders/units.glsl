// Rows of T in pieces of 16 bytes.

#ifdef T_BF16
const uint kUnit = 8;  // elements
#else
const uint kUnit = 4;
#endif

// Elements [first, first + kUnit) of a row of `count`, zeros behind its end. Where `is_aligned`, the row begins at a multiple
// of 16 bytes, and count is a multiple of kUnit.
uvec4 load_unit(uint64_t row, uint first, uint count, bool is_aligned) {
  if (first >= count) return uvec4(0);
  uint64_t address = row + first * kBytesOfT;
  if (is_aligned) return U32x4(address).v[0];
  uvec4 unit = uvec4(0);
#ifdef T_BF16
  for (uint i = 0; i < kUnit; ++i) {
    if (first + i < count) unit[i / 2] |= uint(U16(address + 2 * i).v[0]) << (16 * (i % 2));
  }
#else
  for (uint i = 0; i < kUnit; ++i) {
    if (first + i < count) unit[i] = U32(address + 4 * i).v[0];
  }
#endif
  return unit;
}

// The piece's elements 4 * quad to 4 * quad + 3.
vec4 unit_quad(uvec4 unit, uint quad) {
#ifdef T_BF16
  uvec2 pairs = quad == 0 ? unit.xy : unit.zw;
  return uintBitsToFloat(uvec4(pairs.x << 16, pairs.x & 0xffff0000u, pairs.y << 16, pairs.y & 0xffff0000u));
#else
  return uintBitsToFloat(unit);
#endif
}

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer U32x2 { uvec2 v[]; };

// Elements [first, first + 4) of a row of `count`, as of load_unit().
vec4 load_quad(uint64_t row, uint first, uint count, bool is_aligned) {
  if (is_aligned && first < count) {
#ifdef T_BF16
    return unit_quad(uvec4(U32x2(row + first * 2).v[0], 0, 0), 0);
#else
    return F32x4(row + first * 4).v[0];
#endif
  }
  vec4 quad = vec4(0.0);
  for (uint i = 0; i < 4; ++i) {
    if (first + i < count) quad[i] = load_t(row, first + i);
  }
  return quad;
}
