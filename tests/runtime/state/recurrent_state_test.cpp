#include "runtime/state/recurrent_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/support/test_stream.h"

namespace ferry {
namespace {

constexpr int kNumLayers = 3;
constexpr int64_t kNumSlots = 4;
constexpr std::size_t kConvBytes = 3 * 13 * 2;
constexpr int64_t kDeltaCount = 3 * 5 * 7;

RecurrentStateOptions options_of() {
  return {.num_layers = kNumLayers,
          .num_slots = kNumSlots,
          .conv_channels = 13,
          .conv_kernel = 4,
          .num_v_heads = 3,
          .k_dim = 5,
          .v_dim = 7,
          .dtype = DType::kBF16};
}

int mark(int layer_idx, int64_t slot) { return static_cast<int>(layer_idx * 10 + slot + 1); }

void fill(RecurrentState& state) {
  for (int layer_idx = 0; layer_idx < kNumLayers; ++layer_idx) {
    for (int64_t slot = 0; slot < kNumSlots; ++slot) {
      std::memset(state.conv(layer_idx, slot).host(), mark(layer_idx, slot), kConvBytes);
      std::fill_n(state.delta(layer_idx, slot).host(), kDeltaCount, static_cast<float>(mark(layer_idx, slot)));
    }
  }
}

void expect_filled(RecurrentState& state, int layer_idx, int64_t slot, int value) {
  const std::byte* conv = state.conv(layer_idx, slot).host();
  const float* delta = state.delta(layer_idx, slot).host();
  EXPECT_TRUE(std::all_of(conv, conv + kConvBytes, [&](std::byte b) { return static_cast<int>(b) == value; }))
      << "layer " << layer_idx << " slot " << slot;
  EXPECT_TRUE(std::all_of(delta, delta + kDeltaCount, [&](float x) { return x == static_cast<float>(value); }))
      << "layer " << layer_idx << " slot " << slot;
}

TEST(RecurrentState, StartsAsZerosAtAlignedAddresses) {
  RecurrentState state(options_of());
  for (int layer_idx = 0; layer_idx < kNumLayers; ++layer_idx) {
    for (int64_t slot = 0; slot < kNumSlots; ++slot) {
      expect_filled(state, layer_idx, slot, 0);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(state.conv(layer_idx, slot).host()) % 64, 0U);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(state.delta(layer_idx, slot).host()) % 64, 0U);
    }
  }
}

TEST(RecurrentState, StatesDoNotOverlap) {
  RecurrentState state(options_of());
  fill(state);
  for (int layer_idx = 0; layer_idx < kNumLayers; ++layer_idx) {
    for (int64_t slot = 0; slot < kNumSlots; ++slot) expect_filled(state, layer_idx, slot, mark(layer_idx, slot));
  }
}

TEST(RecurrentState, ResetZeroesOneSlotInAllLayers) {
  RecurrentState state(options_of());
  fill(state);
  test::TestStream stream(1);
  state.reset(stream, 2);
  for (int layer_idx = 0; layer_idx < kNumLayers; ++layer_idx) {
    for (int64_t slot = 0; slot < kNumSlots; ++slot) {
      expect_filled(state, layer_idx, slot, slot == 2 ? 0 : mark(layer_idx, slot));
    }
  }
}

TEST(RecurrentState, CountsBytesOfASlot) {
  // conv: 78 bytes padded to 128; delta: 105 floats = 420 bytes padded to 448.
  EXPECT_EQ(RecurrentState::bytes_per_slot(options_of()), kNumLayers * (128 + 448));
}

TEST(RecurrentState, MayHaveNoLayersOrNoHistory) {
  RecurrentStateOptions none;
  none.num_slots = 2;
  EXPECT_EQ(RecurrentState::bytes_per_slot(none), 0);
  RecurrentState empty(none);
  test::TestStream stream(1);
  empty.reset(stream, 1);

  RecurrentStateOptions no_history = options_of();
  no_history.conv_kernel = 1;
  EXPECT_EQ(RecurrentState::bytes_per_slot(no_history), kNumLayers * 448);
  RecurrentState state(no_history);
  state.delta(1, 3).host()[0] = 5.0F;
  state.reset(stream, 3);
  EXPECT_EQ(state.delta(1, 3).host()[0], 0.0F);
}

TEST(RecurrentStateDeathTest, ChecksLayerAndSlot) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  RecurrentState state(options_of());
  EXPECT_DEATH(state.conv(3, 0), "layer 3 of 3");
  EXPECT_DEATH(state.delta(0, 4), "slot 4 of 4");
  test::TestStream stream(1);
  EXPECT_DEATH(state.reset(stream, -1), "slot -1 of 4");
}

}  // namespace
}  // namespace ferry
