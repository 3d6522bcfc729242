// A pack of what experts come to, as combine and shared_expert_merge of ops.h say. Behind ResidualNormPush p, and how many
// slots a token has: kNumSlots.

#include "exponential.glsl"

const uint kMaxSlots = 16;

uint slot_rows[kMaxSlots];  // of the row
float slot_weights[kMaxSlots];
float shared_gate;

void load_slots(uint row) {
  [[unroll]] for (uint k = 0; k < kNumSlots; ++k) {
    slot_rows[k] = uint(I32(p.slot_row).v[row * kNumSlots + k]);
    slot_weights[k] = F32(p.slot_weights).v[row * kNumSlots + k];
  }
  if (kHasShared != 0) shared_gate = load_t(p.shared_gate, uint64_t(row) * p.gate_stride);
}

// The elements of all slots are on their way before the first is looked at.
Pack combined(uint first) {
  PACKED units[kMaxSlots];
  [[unroll]] for (uint k = 0; k < kNumSlots; ++k) {
    units[k] = load_packed(p.added + uint64_t(slot_rows[k]) * p.added_stride * kBytesOfT, first, p.cols);
  }
  Pack sum;
  [[unroll]] for (uint i = 0; i < kPack; ++i) sum.v[i] = 0.0;
  [[unroll]] for (uint k = 0; k < kNumSlots; ++k) {
    Pack x = unpacked(units[k]);
    [[unroll]] for (uint i = 0; i < kPack; ++i) sum.v[i] = plus_product(sum.v[i], slot_weights[k], x.v[i]);
  }
  [[unroll]] for (uint i = 0; i < kPack; ++i) sum.v[i] = round_t(sum.v[i]);
  return sum;
}

Pack merged(Pack routed, Pack shared_pack) {
  float gate = round_t(accurate_sigmoid(shared_gate));
  [[unroll]] for (uint i = 0; i < kPack; ++i) routed.v[i] = round_t(plus_product(routed.v[i], gate, shared_pack.v[i]));
  return routed;
}

Pack expert_sum(uint row, uint first) {
  if (kHasShared == 0) return combined(first);
  PACKED shared_unit = load_packed(p.shared_row + uint64_t(row) * p.shared_stride * kBytesOfT, first, p.cols);
  return merged(combined(first), unpacked(shared_unit));
}
