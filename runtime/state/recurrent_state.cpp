#include "runtime/state/recurrent_state.h"

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/check.h"
#include "runtime/base/memory_use.h"

namespace ferry {
namespace {

int64_t padded(int64_t bytes) {
  constexpr auto kAlignment = static_cast<int64_t>(AlignedBuffer::kAlignment);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t conv_state_bytes(const RecurrentStateOptions& options) {
  return padded((options.conv_kernel - 1) * options.conv_channels * dtype_bytes(options.dtype));
}

int64_t delta_state_bytes(const RecurrentStateOptions& options) {
  return padded(options.num_v_heads * options.k_dim * options.v_dim * dtype_bytes(DType::kF32));
}

/// Of one layer and slot: the inputs of a convolution, or the rows of a delta rule, which are as wide.
int64_t held_row_bytes(const RecurrentStateOptions& options) {
  return padded(options.max_held * options.conv_channels * dtype_bytes(options.dtype));
}

int64_t held_gate_bytes(const RecurrentStateOptions& options) {
  return padded(2 * options.max_held * options.num_v_heads * dtype_bytes(DType::kF32));
}

Address<float> as_floats(Address<std::byte> at) { return {reinterpret_cast<float*>(at.raw()), at.space()}; }

void zero_slot(Stream& stream, Storage& states, int64_t slot, int64_t slot_bytes) {
  stream.clear(states.address() + slot * slot_bytes, static_cast<std::size_t>(slot_bytes));
}

}  // namespace

RecurrentState::RecurrentState(const RecurrentStateOptions& options, Memory& memory)
    : options_(options),
      conv_bytes_(conv_state_bytes(options)),
      delta_bytes_(delta_state_bytes(options)),
      held_bytes_(held_row_bytes(options)),
      gate_bytes_(held_gate_bytes(options)) {
  FERRY_CHECK_GE(options.num_layers, 0);
  FERRY_CHECK_GE(options.num_slots, 1);
  FERRY_CHECK_GE(options.max_held, 0);
  if (options.num_layers == 0) return;
  FERRY_CHECK(options.conv_channels >= 1 && options.conv_kernel >= 1)
      << options.conv_channels << " channels, kernel " << options.conv_kernel;
  FERRY_CHECK(options.num_v_heads == 0 || (options.num_v_heads >= 1 && options.k_dim >= 1 && options.v_dim >= 1))
      << options.num_v_heads << " heads of " << options.k_dim << " x " << options.v_dim;
  const MemoryUseScope use(MemoryUse::kRecurrentState);
  const int64_t num_states = options.num_layers * options.num_slots;
  conv_ = memory.allocate(static_cast<std::size_t>(num_states * conv_bytes_));
  delta_ = memory.allocate(static_cast<std::size_t>(num_states * delta_bytes_));
  held_conv_ = memory.allocate(static_cast<std::size_t>(num_states * held_bytes_));
  if (options.num_v_heads == 0) return;
  held_delta_ = memory.allocate(static_cast<std::size_t>(num_states * held_bytes_));
  held_gates_ = memory.allocate(static_cast<std::size_t>(num_states * gate_bytes_));
}

Address<std::byte> RecurrentState::conv(int layer_idx, int64_t slot) {
  return conv_.address() + state_idx(layer_idx, slot) * conv_bytes_;
}

Address<float> RecurrentState::delta(int layer_idx, int64_t slot) {
  return as_floats(delta_.address() + state_idx(layer_idx, slot) * delta_bytes_);
}

Address<std::byte> RecurrentState::held_conv(int layer_idx, int64_t slot) {
  return held_conv_.address() + state_idx(layer_idx, slot) * held_bytes_;
}

Address<std::byte> RecurrentState::held_delta(int layer_idx, int64_t slot) {
  return held_delta_.address() + state_idx(layer_idx, slot) * held_bytes_;
}

Address<float> RecurrentState::held_gates(int layer_idx, int64_t slot) {
  return as_floats(held_gates_.address() + state_idx(layer_idx, slot) * gate_bytes_);
}

void RecurrentState::reset(Stream& stream, int64_t slot) {
  FERRY_CHECK(slot >= 0 && slot < options_.num_slots) << "slot " << slot << " of " << options_.num_slots;
  zero_slot(stream, conv_, slot, options_.num_layers * conv_bytes_);
  zero_slot(stream, delta_, slot, options_.num_layers * delta_bytes_);
}

void RecurrentState::save_conv(Stream& stream, int layer_idx, int64_t slot, Address<std::byte> snapshot) {
  stream.copy(conv_.address() + state_idx(layer_idx, slot) * conv_bytes_, snapshot + layer_idx * conv_bytes_,
              static_cast<std::size_t>(conv_bytes_));
  pending_.add(stream, conv_bytes_);
}

void RecurrentState::save_delta(Stream& stream, int layer_idx, int64_t slot, Address<std::byte> snapshot) {
  stream.copy(delta_.address() + state_idx(layer_idx, slot) * delta_bytes_,
              snapshot + options_.num_layers * conv_bytes_ + layer_idx * delta_bytes_, static_cast<std::size_t>(delta_bytes_));
  pending_.add(stream, delta_bytes_);
}

void RecurrentState::restore(Stream& stream, int64_t slot, Address<const std::byte> snapshot) {
  if (options_.num_layers == 0) return;
  const int64_t first = state_idx(0, slot), conv_bytes = options_.num_layers * conv_bytes_,
                delta_bytes = options_.num_layers * delta_bytes_;
  stream.copy(snapshot, conv_.address() + first * conv_bytes_, static_cast<std::size_t>(conv_bytes));
  stream.copy(snapshot + conv_bytes, delta_.address() + first * delta_bytes_, static_cast<std::size_t>(delta_bytes));
  pending_.add(stream, conv_bytes + delta_bytes);
}

int64_t RecurrentState::snapshot_bytes(const RecurrentStateOptions& options) {
  return options.num_layers * (conv_state_bytes(options) + delta_state_bytes(options));
}

int64_t RecurrentState::bytes_per_slot(const RecurrentStateOptions& options) {
  if (options.num_layers == 0) return 0;
  const int64_t held = held_row_bytes(options) * (options.num_v_heads > 0 ? 2 : 1) + held_gate_bytes(options);
  return options.num_layers * (conv_state_bytes(options) + delta_state_bytes(options) + held);
}

int64_t RecurrentState::state_idx(int layer_idx, int64_t slot) const {
  FERRY_CHECK(layer_idx >= 0 && layer_idx < options_.num_layers) << "layer " << layer_idx << " of " << options_.num_layers;
  FERRY_CHECK(slot >= 0 && slot < options_.num_slots) << "slot " << slot << " of " << options_.num_slots;
  return slot * options_.num_layers + layer_idx;
}

}  // namespace ferry
