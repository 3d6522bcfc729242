// A pack of what experts come to, as combine and shared_expert_merge of ops.h say. Behind ResidualNormPush p.

#include "exponential.glsl"

Pack combined(uint row, uint first) {
  Pack sum;
  [[unroll]] for (uint i = 0; i < kPack; ++i) sum.v[i] = 0.0;
  [[unroll]] for (uint k = 0; k < kNumSlots; ++k) {
    uint slot_row = uint(I32(p.slot_row).v[row * kNumSlots + k]);
    float weight = F32(p.slot_weights).v[row * kNumSlots + k];
    Pack x = load_pack(p.added + uint64_t(slot_row) * p.added_stride * kBytesOfT, first, p.cols);
    [[unroll]] for (uint i = 0; i < kPack; ++i) sum.v[i] = plus_product(sum.v[i], weight, x.v[i]);
  }
  [[unroll]] for (uint i = 0; i < kPack; ++i) sum.v[i] = round_t(sum.v[i]);
  return sum;
}

Pack merged(Pack routed, uint row, uint first) {
  float gate = round_t(accurate_sigmoid(load_t(p.shared_gate, uint64_t(row) * p.gate_stride)));
  Pack shared_pack = load_pack(p.shared_row + uint64_t(row) * p.shared_stride * kBytesOfT, first, p.cols);
  [[unroll]] for (uint i = 0; i < kPack; ++i) routed.v[i] = round_t(plus_product(routed.v[i], gate, shared_pack.v[i]));
  return routed;
}
