#version 460
// causal_conv1d of ops.h: an invocation has one channel of up to kConvTokens tokens of a sequence. With UPDATES_STATE it has
// the channel's state instead, once nobody reads the old one any more.
//
// Time counts the sequence's rows in the call: the replayed rows lie before 0, and the state before them.
#include "common.glsl"
#include "exponential.glsl"
#include "push_conv.h"

layout(constant_id = 1) const uint kKernel = 4;
layout(constant_id = 2) const uint kIsSilu = 1;

layout(push_constant, scalar) uniform Push { ConvPush p; };

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer ConvSequences { ConvSequence v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer ConvTasks { ConvTask v[]; };

// The bits of T, which states take over as they are.
#ifdef T_BF16
#define BITS U16
#define bits_t uint16_t
float from_bits(bits_t bits) { return from_bf16(bits); }
#else
#define BITS U32
#define bits_t uint
float from_bits(bits_t bits) { return uintBitsToFloat(bits); }
#endif

const uint kPast = kKernel - 1;

bits_t input_at(ConvSequence sequence, int time, uint channel) {
  if (time >= 0) return BITS(p.x + ((uint64_t(sequence.first_row) + time) * p.x_stride + channel) * kBytesOfT).v[0];
  int replayed = time + int(sequence.num_replayed);
  if (replayed >= 0) return BITS(sequence.held + (uint64_t(replayed) * p.channels + channel) * kBytesOfT).v[0];
  return BITS(sequence.state + (uint64_t(replayed + int(kPast)) * p.channels + channel) * kBytesOfT).v[0];
}

// In ascending order: a row only moves towards the front, and none is overwritten that is still to be read.
void update_state(ConvSequence sequence, uint channel) {
  int first = int(sequence.num_taken) - int(kPast);
  for (uint j = 0; j < kPast; ++j) {
    bits_t bits = input_at(sequence, first + int(j), channel);
    BITS(sequence.state + (uint64_t(j) * p.channels + channel) * kBytesOfT).v[0] = bits;
  }
}

#ifndef UPDATES_STATE
void convolve(ConvSequence sequence, uint first_token, uint channel) {
  float weight[kKernel], inputs[kKernel + kConvTokens - 1];
  uint64_t weights = p.weight + uint64_t(channel) * kKernel * 4;
  [[unroll]] for (uint tau = 0; tau < kKernel; ++tau) weight[tau] = F32(weights).v[tau];
  uint count = min(kConvTokens, sequence.num_tokens - first_token);
  if (first_token >= kPast && count == kConvTokens) {  // all are rows of the call: loads without a branch
    uint64_t first = p.x + ((uint64_t(sequence.first_row) + first_token - kPast) * p.x_stride + channel) * kBytesOfT;
    [[unroll]] for (uint i = 0; i < kKernel + kConvTokens - 1; ++i)
      inputs[i] = from_bits(BITS(first + uint64_t(i) * p.x_stride * kBytesOfT).v[0]);
  } else {
    [[unroll]] for (uint i = 0; i < kKernel + kConvTokens - 1; ++i) {
      int time = int(first_token + i) - int(kPast);
      inputs[i] = i < count + kPast ? from_bits(input_at(sequence, time, channel)) : 0.0;
    }
  }
  [[unroll]] for (uint t = 0; t < kConvTokens; ++t) {
    if (t >= count) break;
    float sum = 0.0;
    [[unroll]] for (uint tau = 0; tau < kKernel; ++tau) {
      precise float next = fma(weight[tau], inputs[t + tau], sum);
      sum = next;
    }
    float y = round_t(sum);
    uint64_t row = p.result + (uint64_t(sequence.first_row) + first_token + t) * p.result_stride * kBytesOfT;
    store_t(row, channel, kIsSilu != 0 ? silu_of_t(y) : y);
  }
}
#endif

void main() {
  uint blocks = (p.channels + kConvInvocations - 1) / kConvInvocations;
  uint task_idx = workgroup_row() / blocks;
  uint channel = (workgroup_row() - task_idx * blocks) * kConvInvocations + gl_LocalInvocationID.x;
  if (task_idx >= p.num_tasks || channel >= p.channels) return;
  ConvTask task = ConvTasks(p.tasks).v[task_idx];
  ConvSequence sequence = ConvSequences(p.sequences).v[task.sequence];
#ifdef UPDATES_STATE
  update_state(sequence, channel);
#else
  convolve(sequence, task.first_token, channel);
  if (sequence.num_tokens <= kConvTokens) update_state(sequence, channel);
#endif
}
