// Rows in packs: the kPack consecutive Ts of 16 bytes that one invocation takes at once where rows lie at multiples of 16
// bytes, and one by one elsewhere. An invocation has the same elements either way, so that sums do not depend on where a row
// lies.

layout(constant_id = 1) const uint kIsAligned = 0;  // whether all rows, and all fp32 vectors, begin at multiples of 16 bytes

const uint kPack = 16 / kBytesOfT;
struct Pack {
  float v[kPack];
};

// Elements [first, first + kPack) of a row of `cols`, zeros behind its end.
Pack load_pack(uint64_t row, uint first, uint cols) {
  Pack x;
  if (kIsAligned != 0 && first + kPack <= cols) {
#ifdef T_BF16
    uvec4 raw = U32x4(row + uint64_t(first) * 2).v[0];
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      x.v[2 * i] = uintBitsToFloat(raw[i] << 16);
      x.v[2 * i + 1] = uintBitsToFloat(raw[i] & 0xffff0000u);
    }
#else
    vec4 raw = F32x4(row + uint64_t(first) * 4).v[0];
    [[unroll]] for (uint i = 0; i < 4; ++i) x.v[i] = raw[i];
#endif
  } else {
    [[unroll]] for (uint i = 0; i < kPack; ++i) {
      x.v[i] = 0.0;
      if (first + i < cols) x.v[i] = load_t(row, first + i);
    }
  }
  return x;
}

void store_pack(uint64_t row, uint first, uint cols, Pack x) {
  if (kIsAligned != 0 && first + kPack <= cols) {
#ifdef T_BF16
    uvec4 raw;
    [[unroll]] for (uint i = 0; i < 4; ++i) raw[i] = bf16_bits(x.v[2 * i]) | bf16_bits(x.v[2 * i + 1]) << 16;
    U32x4(row + uint64_t(first) * 2).v[0] = raw;
#else
    F32x4(row + uint64_t(first) * 4).v[0] = vec4(x.v[0], x.v[1], x.v[2], x.v[3]);
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
  if (kIsAligned != 0 && first + kPack <= cols) {
    [[unroll]] for (uint i = 0; i < kPack; i += 4) {
      vec4 raw = F32x4(row + uint64_t(first + i) * 4).v[0];
      [[unroll]] for (uint j = 0; j < 4; ++j) x.v[i + j] = raw[j];
    }
  } else {
    [[unroll]] for (uint i = 0; i < kPack; ++i) {
      x.v[i] = 0.0;
      if (first + i < cols) x.v[i] = F32(row + uint64_t(first + i) * 4).v[0];
    }
  }
  return x;
}
