// What every shader begins with, behind its #version: extensions, addresses, and the run's dtype T (T_F32 or T_BF16).
//
// Memory is reached by address: `F32(address).v[i]`, `load_t(address, i)`. A workgroup's size is specialisation constant 0;
// a shader's own constants count from 1.

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x_id = 0) in;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer F32 { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer I32 { int v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer U32 { uint v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer U16 { uint16_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer I8 { int8_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer U8 { uint8_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer U64 { uint64_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer F32x4 { vec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer U32x4 { uvec4 v[]; };

// A bfloat16 is the upper half of a float.
float from_bf16(uint16_t bits) { return uintBitsToFloat(uint(bits) << 16); }

// To nearest, ties to even; a NaN stays a quiet NaN.
uint bf16_bits(float x) {
  uint u = floatBitsToUint(x);
  uint rounded = u + 0x7fffu + ((u >> 16) & 1u);
  bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
  return (is_nan ? u | 0x00400000u : rounded) >> 16;
}
float round_to_bf16(float x) { return uintBitsToFloat(bf16_bits(x) << 16); }

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }

#ifdef T_BF16
const uint kBytesOfT = 2;
float load_t(uint64_t address, uint64_t i) { return from_bf16(U16(address + i * 2).v[0]); }
void store_t(uint64_t address, uint64_t i, float x) { U16(address + i * 2).v[0] = uint16_t(bf16_bits(x)); }
float round_t(float x) { return round_to_bf16(x); }
#else
const uint kBytesOfT = 4;
float load_t(uint64_t address, uint64_t i) { return F32(address + i * 4).v[0]; }
void store_t(uint64_t address, uint64_t i, float x) { F32(address + i * 4).v[0] = x; }
float round_t(float x) { return x; }
#endif

// The logistic function, in a form that neither end of fp32 overflows.
float sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }
float silu(float x) { return x / (1.0 + exp(-x)); }

// a + T(b * c), not contracted where T is f32.
float plus_product(float a, float b, float c) {
  precise float product = b * c;
  precise float sum = a + round_t(product);
  return sum;
}

// The row of a workgroup, of a grid that was folded (grid_of_rows() in ops/views.h), which may have more workgroups than rows.
uint workgroup_row() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
// Likewise of an invocation among elements.
uint64_t invocation_element() {
  return uint64_t(workgroup_row()) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
}
