#version 460
// gated_delta_mix of ops.h, of sequences with one row: a workgroup has one value head of a sequence, with a slice of its state
// for every kDeltaInvocations of its invocations. Every value is rounded as by the ops that this is made of. The states of the
// convolution are only read: several heads share the channels of a key.
#include "common.glsl"
#include "exponential.glsl"
#include "delta_gates.glsl"
#include "delta_recurrence.glsl"
#include "squares.glsl"

layout(constant_id = 4) const uint kKernel = 4;

layout(push_constant, scalar) uniform Push { DeltaMixPush p; };

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer DeltaMixSequences { DeltaMixSequence v[]; };

const uint kPast = kKernel - 1;
const uint kMixed = 2 * kKeyDim + kValueDim;

shared float mixed[kMixed];       // q, k and v behind the convolution
shared float heads_out[kValueDim];
shared float decay, beta;

// Of element `i` of mixed, among all channels.
uint channel_of(uint i, uint v_head) {
  uint k_head = v_head / (p.num_v_heads / p.num_k_heads);
  if (i < kKeyDim) return k_head * kKeyDim + i;
  if (i < 2 * kKeyDim) return (p.num_k_heads + k_head) * kKeyDim + i - kKeyDim;
  return 2 * p.num_k_heads * kKeyDim + v_head * kValueDim + i - 2 * kKeyDim;
}

float convolve(DeltaMixSequence sequence, uint channel) {
  uint channels = 2 * p.num_k_heads * kKeyDim + p.num_v_heads * kValueDim;
  uint64_t weights = p.conv_weight + uint64_t(channel) * kKernel * 4;
  float sum = 0.0;
  [[unroll]] for (uint tau = 0; tau < kKernel; ++tau) {
    float x = tau < kPast ? load_t(sequence.conv_state, uint64_t(tau) * channels + channel)
                          : load_t(p.x, uint64_t(sequence.row) * p.x_stride + channel);
    precise float next = fma(F32(weights).v[tau], x, sum);
    sum = next;
  }
  return round_t(silu_of_t(round_t(sum)));
}

void find_gates(uint row, uint v_head) {
  float a = load_t(p.a, uint64_t(row) * p.a_stride + v_head), b = load_t(p.b, uint64_t(row) * p.b_stride + v_head);
  decay = delta_decay(a, F32(p.a_log).v[v_head], F32(p.dt_bias).v[v_head]);
  beta = delta_beta(b);
}

Pack head_pack(uint first) {
  Pack x;
  [[unroll]] for (uint i = 0; i < kPack; ++i) {
    x.v[i] = 0.0;
    if (first + i < kValueDim) x.v[i] = heads_out[first + i];
  }
  return x;
}

// What the norm of the head needs beside its elements, of an invocation's first pack: all there is in a large subgroup. It is
// asked for at the start.
struct NormInput {
  uint64_t gates, result;
  Pack gate, weight;
};

NormInput load_norm_input(uint row, uint v_head) {
  uint head_row = row * p.num_v_heads + v_head, first = gl_SubgroupInvocationID * kPack;
  NormInput norm;
  norm.gates = p.gate + uint64_t(head_row) * p.gate_stride * kBytesOfT;
  norm.result = p.result + uint64_t(head_row) * p.result_stride * kBytesOfT;
  norm.gate = load_pack(norm.gates, first, kValueDim);
  norm.weight = load_floats(p.norm_weight, first, kValueDim);
  return norm;
}

// By the first subgroup, which shares a row of up to kMaxSubgroupCols elements in gated_rms_norm too.
void norm_head(NormInput norm) {
  uint first = gl_SubgroupInvocationID * kPack, step = gl_SubgroupSize * kPack;
  precise float squares = squares_of(head_pack(first));
  for (uint i = first + step; i < kValueDim; i += step) squares += squares_of(head_pack(i));
  float scale = inverse_rms(subgroupAdd(squares), kValueDim, p.eps);
  for (uint i = first; i < kValueDim; i += step) {
    if (i > first) {
      norm.gate = load_pack(norm.gates, i, kValueDim);
      norm.weight = load_floats(p.norm_weight, i, kValueDim);
    }
    store_pack(norm.result, i, kValueDim, gated(head_pack(i), norm.gate, norm.weight, scale, p.rounds_weighted != 0));
  }
}

void main() {
  uint sequence_idx = workgroup_row() / p.num_v_heads, v_head = workgroup_row() - sequence_idx * p.num_v_heads;
  if (sequence_idx >= p.num_sequences) return;
  DeltaMixSequence sequence = DeltaMixSequences(p.sequences).v[sequence_idx];
  find_place(0);
  uint64_t state = sequence.state + uint64_t(v_head) * (kKeyDim * kValueDim * 4);
  vec4 slice[kPartRows];
  load_state(state, slice);
  NormInput norm = load_norm_input(sequence.row, v_head);
  for (uint i = gl_LocalInvocationID.x; i < kMixed; i += gl_WorkGroupSize.x) {
    mixed[i] = convolve(sequence, channel_of(i, v_head));
  }
  if (gl_LocalInvocationID.x == gl_WorkGroupSize.x - 1) find_gates(sequence.row, v_head);
  barrier();
  float q[kPartRows], k[kPartRows];
  [[unroll]] for (uint i = 0; i < kPartRows; ++i) {
    uint element = part * kPartRows + i;
    q[i] = element < kKeyDim ? mixed[element] : 0.0;
    k[i] = element < kKeyDim ? mixed[kKeyDim + element] : 0.0;
  }
  vec4 v = vec4(0.0);
  for (uint c = 0; c < 4; ++c) {
    if (column + c < kValueDim) v[c] = mixed[2 * kKeyDim + column + c];
  }
  vec4 result = delta_step(q, k, v, decay, beta, slice);
  store_state(state, slice);
  if (part == 0) {
    for (uint c = 0; c < 4; ++c) {
      if (column + c < kValueDim) heads_out[column + c] = round_t(result[c]);
    }
  }
  barrier();
  if (gl_SubgroupID == 0) norm_head(norm);
}
