// Rows as codes of 8 bits with a scale, as quantize_rows of ops.h says. Every device gives the same bits: quotients are taken in
// integers, since Vulkan's division may be off in the last place, and rows so small that elements may be denormals are taken
// 2^24 times as large.

#include "row_team.glsl"

const uint kInfinity = 0x7f800000u, kNan = 0x7fc00000u;
const uint kExponentStep = 0x800000u;  // 1 in the exponent of a float's bits
const uint kSmallExponent = 64;        // of the largest magnitude of rows that count as small

shared uint team_parts[256];  // [subgroups]

// Of the bits of magnitudes, which have the order of the magnitudes. Called once.
uint team_max(uint x) {
  uint largest = subgroupMax(x);
  if (kTeamIsSubgroup != 0) return largest;
  if (subgroupElect()) team_parts[gl_SubgroupID] = largest;
  barrier();
  for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) largest = max(largest, team_parts[i]);
  return subgroupMax(largest);
}

uint largest_of(Pack x) {
  uint largest = 0;
  [[unroll]] for (uint i = 0; i < kPack; ++i) largest = max(largest, floatBitsToUint(x.v[i]) & 0x7fffffffu);
  return largest;
}

// The bits of numerator / divisor * 2^(exponent - 150), rounded to nearest, for quotients of 24 bits, which are never half an
// integer here: an estimate, and what it leaves, which has fewer than 32 bits. `low`: the numerator modulo 2^32.
// A quotient that becomes 2^24 carries into the exponent.
uint quotient_bits(float numerator, uint low, uint divisor, uint exponent) {
  uint quotient = uint(numerator / float(divisor));
  int rest = int(low - quotient * divisor);
  for (; 2 * rest > int(divisor); rest -= int(divisor)) ++quotient;
  for (; 2 * rest < -int(divisor); rest += int(divisor)) --quotient;
  return exponent * kExponentStep + (quotient - kExponentStep);
}

// x * 2^24, of denormals too.
float scaled_up(float x) {
  uint magnitude = floatBitsToUint(x) & 0x7fffffffu;
  if (magnitude >= kExponentStep) return x * 16777216.0;
  float y = float(magnitude) * uintBitsToFloat(2 * kExponentStep);  // in units of 2^-149
  return floatBitsToInt(x) < 0 ? -y : y;
}

// What a row is multiplied by.
struct RowScale {
  uint scale, inverse;  // the bits of floats
  bool is_small;
};

// Of a row whose largest magnitude has the bits `largest`.
RowScale row_scale(uint largest) {
  uint exponent = largest / kExponentStep, mantissa = largest % kExponentStep + kExponentStep;
  uint shift = mantissa < 127u << 17 ? 7 : 6;  // makes 24 bits of mantissa / 127; 47 - shift makes them of 127 / mantissa
  RowScale row = RowScale(largest >= kInfinity ? kNan : 0, 0, exponent < kSmallExponent);
  if (largest < kInfinity && exponent > shift) {
    uint numerator = mantissa << shift;
    row.scale = quotient_bits(float(numerator), numerator, 127, exponent - shift);
    float power = uintBitsToFloat((127 + 47 - shift) * kExponentStep);
    row.inverse = quotient_bits(127.0 * power, 0, mantissa, 253 + shift - exponent);
    if (row.is_small) row.inverse -= 24 * kExponentStep;
  }
  return row;
}

// Four codes: the low bytes.
uint codes_of(vec4 x, RowScale row) {
  float inverse = uintBitsToFloat(row.inverse);
  if (inverse == 0.0) return 0;
  uint word = 0;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    precise float code = x[i] * inverse;
    word |= (uint(int(roundEven(code))) & 0xffu) << (8 * i);
  }
  return word;
}

void store_codes(uint64_t codes, Pack x, RowScale row) {
  const uint kWordCodes = kPack < 4 ? kPack : 4;
  [[unroll]] for (uint i = 0; i < kPack; i += kWordCodes) {
    vec4 values = vec4(0.0);
    [[unroll]] for (uint j = 0; j < kWordCodes; ++j) values[j] = x.v[i + j];
    uint word = codes_of(values, row);
    if (kIsAligned == 0) {
      [[unroll]] for (uint j = 0; j < kWordCodes; ++j) U8(codes + i + j).v[0] = uint8_t(word >> (8 * j));
    } else if (kWordCodes == 4) {
      U32(codes + i).v[0] = word;
    } else {
      U16(codes + i).v[0] = uint16_t(word);
    }
  }
}

// A row that the team has in packs. All invocations of the team call it, once.
void quantize_row(Pack x[kRowPacks], uint64_t codes, uint codes_cols, uint64_t scale) {
  uint largest = 0;
  for (uint i = 0; i < kRowPacks; ++i) largest = max(largest, largest_of(x[i]));
  RowScale row = row_scale(team_max(largest));
  if (team_pack(0) == 0) U32(scale).v[0] = row.scale;
  if (row.is_small) {
    for (uint i = 0; i < kRowPacks; ++i) {
      [[unroll]] for (uint j = 0; j < kPack; ++j) x[i].v[j] = scaled_up(x[i].v[j]);
    }
  }
  for (uint i = 0; i < kRowPacks; ++i) {
    if (team_pack(i) < codes_cols) store_codes(codes + team_pack(i), x[i], row);
  }
}
