#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/stream.h"
#include "runtime/base/types.h"
#include "runtime/state/pending_copies.h"

namespace ferry {

struct RecurrentStateOptions {
  int num_layers = 0;         // layers with such a state only; >= 0
  int64_t num_slots = 0;      // sequences that can run at once; >= 1
  int64_t conv_channels = 0;  // >= 1
  int64_t conv_kernel = 4;    // taps of the causal convolution; >= 1
  int64_t num_v_heads = 0;    // of the delta rule; 0: the layers have none, and k_dim and v_dim are of no use
  int64_t k_dim = 0;          // >= 1
  int64_t v_dim = 0;          // >= 1
  DType dtype = DType::kF32;  // of the activations, hence of the convolution's history; the delta state is always fp32
  int64_t max_held = 0;       // rows that a step may hold back, a sequence; >= 0
};

/// What layers with a convolution, and perhaps a delta rule behind it, remember of a sequence, however long it is. A running
/// sequence owns one slot in every layer. Allocated and zeroed at construction; every state starts at a 64-byte boundary.
///
/// A state cannot be taken back, so it takes in only what is certain. Of rows that may turn out wrong (drafts) the inputs are
/// held beside it, and the next step replays those that were right: with max_held of 3 that is 5 % more memory than the state
/// alone at the shapes of Qwen3.5-35B, where a copy of the state for each row would be 300 %.
///
/// Layers are counted among those with such a state, not among all layers of the model. Distinct slots may be used by distinct
/// threads.
class RecurrentState {
 public:
  /// Throws std::bad_alloc when the memory is not there.
  explicit RecurrentState(const RecurrentStateOptions& options, Memory& memory = host_memory());

  /// The last inputs of the convolution, oldest first: [conv_kernel - 1, conv_channels] dtype. May be null if conv_kernel is 1.
  Address<std::byte> conv(int layer_idx, int64_t slot);

  /// The delta rule's matrices: [num_v_heads, k_dim, v_dim] fp32. Of no use without heads.
  Address<float> delta(int layer_idx, int64_t slot);

  /// The inputs of the convolution that the last step held back: [max_held, conv_channels] dtype.
  Address<std::byte> held_conv(int layer_idx, int64_t slot);

  /// Of the delta rule: its rows [max_held, conv_channels] dtype, and its gates, of all rows the decays [max_held, num_v_heads]
  /// fp32, then the betas.
  Address<std::byte> held_delta(int layer_idx, int64_t slot);
  Address<float> held_gates(int layer_idx, int64_t slot);

  /// Makes the slot that of a new sequence: zeros in every layer.
  void reset(Stream& stream, int64_t slot);

  /// Copies a layer's part of what a slot has taken in, the convolution's inputs or the delta rule's matrices, to its place in
  /// a snapshot of snapshot_bytes() bytes, which may be on the host while the state is not. What is held is no part of it.
  void save_conv(Stream& stream, int layer_idx, int64_t slot, Address<std::byte> snapshot);
  void save_delta(Stream& stream, int layer_idx, int64_t slot, Address<std::byte> snapshot);
  /// Makes the slot that of a sequence whose state a snapshot holds, to the bit.
  void restore(Stream& stream, int64_t slot, Address<const std::byte> snapshot);

  const RecurrentStateOptions& options() const { return options_; }

  /// Bytes of one slot in all layers, padding to 64 bytes included. num_slots does not matter.
  static int64_t bytes_per_slot(const RecurrentStateOptions& options);

  /// Bytes of a snapshot: the convolution's inputs of all layers, then the delta rule's matrices of all layers, each padded as
  /// in the state. 0 without such layers.
  static int64_t snapshot_bytes(const RecurrentStateOptions& options);

 private:
  int64_t state_idx(int layer_idx, int64_t slot) const;

  RecurrentStateOptions options_;
  int64_t conv_bytes_ = 0;          // of one layer and slot, padded
  int64_t delta_bytes_ = 0;         // likewise
  int64_t held_bytes_ = 0;          // of one layer and slot: rows of the convolution, likewise of the delta rule
  int64_t gate_bytes_ = 0;          // of one layer and slot, both gates
  Storage conv_;                    // [num_slots, num_layers] of conv_bytes_: a slot lies together, for reset
  Storage delta_;                   // [num_slots, num_layers] of delta_bytes_
  Storage held_conv_, held_delta_;  // [num_slots, num_layers] of held_bytes_
  Storage held_gates_;              // [num_slots, num_layers] of gate_bytes_
  PendingCopies pending_;           // to and from snapshots
};

}  // namespace ferry
