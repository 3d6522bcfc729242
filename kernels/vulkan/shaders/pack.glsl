// Rows in packs: the kPack consecutive Ts of 16 bytes that one invocation takes at once where rows lie at multiples of 16
// bytes, and one by one elsewhere. An invocation has the same elements either way, so that sums do not depend on where a row
// lies.

#include "units.glsl"

// Whether all rows, and all fp32 vectors, begin at multiples of 16 bytes, and rows are whole packs.
layout(constant_id = 1) const uint kIsAligned = 0;

#ifdef HALF_PACKS
// Two invocations share the 16 bytes, so that each has half the work; sums are taken as if one had them (row_team.glsl).
const uint kPack = kUnit / 2;
#define PACKED uvec2
#else
const uint kPack = kUnit;
#define PACKED uvec4
#endif
const uint kPackWords = kPack * kBytesOfT / 4;

struct Pack {
  float v[kPack];
};

PACKED load_words(uint64_t address) {
#ifdef HALF_PACKS
  return U32x2(address).v[0];
#else
  return U32x4(address).v[0];
#endif
}

// Elements [first, first + kPack) of a row of `cols` as they lie in memory, zeros behind its end. Aligned ones without a
// branch: what is loaded behind one waits for what was loaded before it.
PACKED load_packed(uint64_t row, uint first, uint cols) {
  if (kIsAligned != 0) {
    PACKED words = load_words(row + uint64_t(min(first, cols - kPack)) * kBytesOfT);
    return first < cols ? words : PACKED(0);
  }
  PACKED words = PACKED(0);
  for (uint i = 0; i < kPack; ++i) {
    if (first + i >= cols) continue;
#ifdef T_BF16
    words[i / 2] |= uint(U16(row + uint64_t(first + i) * 2).v[0]) << (16 * (i % 2));
#else
    words[i] = U32(row + uint64_t(first + i) * 4).v[0];
#endif
  }
  return words;
}

Pack unpacked(PACKED words) {
  Pack x;
#ifdef T_BF16
  [[unroll]] for (uint i = 0; i < kPackWords; ++i) {
    x.v[2 * i] = uintBitsToFloat(words[i] << 16);
    x.v[2 * i + 1] = uintBitsToFloat(words[i] & 0xffff0000u);
  }
#else
  [[unroll]] for (uint i = 0; i < kPackWords; ++i) x.v[i] = uintBitsToFloat(words[i]);
#endif
  return x;
}

Pack load_pack(uint64_t row, uint first, uint cols) { return unpacked(load_packed(row, first, cols)); }

void store_pack(uint64_t row, uint first, uint cols, Pack x) {
  if (kIsAligned != 0) {
    PACKED words;
#ifdef T_BF16
    [[unroll]] for (uint i = 0; i < kPackWords; ++i) words[i] = bf16_bits(x.v[2 * i]) | bf16_bits(x.v[2 * i + 1]) << 16;
#else
    [[unroll]] for (uint i = 0; i < kPackWords; ++i) words[i] = floatBitsToUint(x.v[i]);
#endif
    uint64_t address = row + uint64_t(first) * kBytesOfT;
#ifdef HALF_PACKS
    if (first < cols) U32x2(address).v[0] = words;
#else
    if (first < cols) U32x4(address).v[0] = words;
#endif
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
#ifdef HALF_PACKS
    [[unroll]] for (uint i = 0; i < kPack; i += 2) {
      vec2 raw = uintBitsToFloat(U32x2(address + 4 * i).v[0]);
      [[unroll]] for (uint j = 0; j < 2; ++j) x.v[i + j] = first < cols ? raw[j] : 0.0;
    }
#else
    [[unroll]] for (uint i = 0; i < kPack; i += 4) {
      vec4 raw = F32x4(address + 4 * i).v[0];
      [[unroll]] for (uint j = 0; j < 4; ++j) x.v[i + j] = first < cols ? raw[j] : 0.0;
    }
#endif
  } else {
    [[unroll]] for (uint i = 0; i < kPack; ++i) {
      x.v[i] = 0.0;
      if (first + i < cols) x.v[i] = F32(row + uint64_t(first + i) * 4).v[0];
    }
  }
  return x;
}
