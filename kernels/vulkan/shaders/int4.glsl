// Codes of int4 weights and the words of their groups, as pack_weights.h lays them out. Behind matmul_common.glsl.

#include "kernels/vulkan/shaders/fused_multiply_add.glsl"

struct GroupWord {
  float scale;
  uint zero_point;
};

// Of a column of a panel, of u16 words, or u32 words if `is_wide`.
GroupWord load_group_word(uint64_t weights, uint panel, uint group, uint num_groups, uint column, bool is_wide) {
  if (is_wide) {
    uint word = U32(words_address(weights, panel, group, num_groups, 4)).v[column];
    return GroupWord(uintBitsToFloat(word & ~15u), word & 15u);
  }
  uint word = uint(U16(words_address(weights, panel, group, num_groups, 2)).v[column]);
  return GroupWord(uintBitsToFloat(word >> 4 << 19), word & 15u);
}

// Four codes less their zero point as signed bytes: -15 to 15. No byte borrows from the next.
uint less_zero_point(uint codes, uint zero_point) { return ((codes | 0x80808080u) - zero_point * 0x01010101u) ^ 0x80808080u; }
// Of a word of eight codes: the first four are the low nibbles.
uint first_codes(uint word, uint zero_point) { return less_zero_point(word & 0x0f0f0f0fu, zero_point); }
uint last_codes(uint word, uint zero_point) { return less_zero_point((word >> 4) & 0x0f0f0f0fu, zero_point); }

// fma(scale, dot, sum). A scale that is not wide has five significant bits and a group's sum 19: then the product is exact, and
// two operations round once.
float add_group(bool is_wide, bool is_fused, float scale, float dot, float sum) {
  if (is_wide) return fused_multiply_add(is_fused, scale, dot, sum);
  precise float result = scale * dot + sum;
  return result;
}
