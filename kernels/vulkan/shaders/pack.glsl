// Rows in packs: the kPack consecutive Ts of 16 bytes that one invocation takes at once where rows lie at multiples of 16
// bytes, and one by one elsewhere. An invocation has the same elements either way, so that sums do not depend on where a row
// lies.

#include "units.glsl"

// Whether all rows, and all fp32 vectors, begin at multiples of 16 bytes, and rows are whole packs.
layout(constant_id = 1) const uint kIsAligned = 0;

const uint kPack = kUnit;
struct Pack {
  float v[kPack];
};

// Elements [first, first + kPack) of a row of `cols` as they lie in memory, zeros behind its end. Aligned ones without a
// branch: what is loaded behind one waits for what was loaded before it.
uvec4 load_packed(uint64_t row, uint first, uint cols) {
  if (kIsAligned == 0) return load_unit(row, first, cols, false);
  uvec4 unit = U32x4(row + uint64_t(min(first, cols - kPack)) * kBytesOfT).v[0];
  return first < cols ? unit : uvec4(0);
}

Pack unpacked(uvec4 unit) {
  Pack x;
#ifdef T_BF16
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    x.v[2 * i] = uintBitsToFloat(unit[i] << 16);
    x.v[2 * i + 1] = uintBitsToFloat(unit[i] & 0xffff0000u);
  }
#else
  [[unroll]] for (uint i = 0; i < 4; ++i) x.v[i] = uintBitsToFloat(unit[i]);
#endif
  return x;
}

Pack load_pack(uint64_t row, uint first, uint cols) { return unpacked(load_packed(row, first, cols)); }

void store_pack(uint64_t row, uint first, uint cols, Pack x) {
  if (kIsAligned != 0) {
    uvec4 unit;
#ifdef T_BF16
    [[unroll]] for (uint i = 0; i < 4; ++i) unit[i] = bf16_bits(x.v[2 * i]) | bf16_bits(x.v[2 * i + 1]) << 16;
#else
    [[unroll]] for (uint i = 0; i < 4; ++i) unit[i] = floatBitsToUint(x.v[i]);
#endif
    if (first < cols) U32x4(row + uint64_t(first) * kBytesOfT).v[0] = unit;
  } else {
    [[unroll]] for (uint i = 0; i < kPack; ++i) {
      if (first + i < cols) store_t(row, first + i, x.v[i]);
    }
  }
}

// As of load_pack(), of fp32 numbers.
Pack load_floats(uint64_t row, uint first, uint cols) {
  Pack x;
  if (kIsAligned != 0) {
    uint64_t address = row + uint64_t(min(first, cols - kPack)) * 4;
    [[unroll]] for (uint i = 0; i < kPack; i += 4) {
      vec4 raw = F32x4(address + 4 * i).v[0];
      [[unroll]] for (uint j = 0; j < 4; ++j) x.v[i + j] = first < cols ? raw[j] : 0.0;
    }
  } else {
    [[unroll]] for (uint i = 0; i < kPack; ++i) {
      x.v[i] = 0.0;
      if (first + i < cols) x.v[i] = F32(row + uint64_t(first + i) * 4).v[0];
    }
  }
  return x;
}
