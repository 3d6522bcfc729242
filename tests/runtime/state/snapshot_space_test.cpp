#include "runtime/state/snapshot_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/support/test_stream.h"

namespace ferry {
namespace {

constexpr RecurrentStateOptions kStates{.num_layers = 2,
                                        .num_slots = 3,
                                        .conv_channels = 13,
                                        .conv_kernel = 4,
                                        .num_v_heads = 3,
                                        .k_dim = 5,
                                        .v_dim = 7,
                                        .dtype = DType::kBF16,
                                        .max_held = 2};
constexpr std::size_t kSavedConvBytes = 3 * 13 * 2, kSavedDeltaBytes = 3 * 5 * 7 * 4;

void fill_slot(RecurrentState& state, int64_t slot, int mark) {
  for (int layer = 0; layer < kStates.num_layers; ++layer) {
    std::memset(state.conv(layer, slot).host(), mark + layer, kSavedConvBytes);
    std::memset(state.delta(layer, slot).host(), mark + layer + 100, kSavedDeltaBytes);
    std::memset(state.held_conv(layer, slot).host(), mark + 50, 2 * 13 * 2);
  }
}

bool is_filled(RecurrentState& state, int64_t slot, int mark) {
  const auto all_are = [](const void* data, std::size_t size, int value) {
    const auto* bytes = static_cast<const std::byte*>(data);
    return std::all_of(bytes, bytes + size, [&](std::byte b) { return static_cast<int>(b) == value; });
  };
  bool filled = true;
  for (int layer = 0; layer < kStates.num_layers; ++layer) {
    filled = filled && all_are(state.conv(layer, slot).host(), kSavedConvBytes, mark + layer) &&
             all_are(state.delta(layer, slot).host(), kSavedDeltaBytes, mark + layer + 100);
  }
  return filled;
}

void save(SnapshotSpace& space, RecurrentState& state, Stream& stream, int64_t slot, int64_t snapshot) {
  const Address<std::byte> place = space.place(snapshot);
  for (int layer = 0; layer < kStates.num_layers; ++layer) {
    state.save_conv(stream, layer, slot, place);
    state.save_delta(stream, layer, slot, place);
  }
}

TEST(SnapshotSpace, BringsAStateToAnySlot) {
  test::TestStream stream(1);
  RecurrentState state(kStates);
  SnapshotSpace space(state, stream, 4);
  fill_slot(state, 0, 1);
  fill_slot(state, 1, 10);
  fill_slot(state, 2, 20);
  EXPECT_EQ(space.num_bytes(), 0);
  save(space, state, stream, 0, 3);
  save(space, state, stream, 1, 1);
  EXPECT_EQ(space.num_bytes(), 2 * RecurrentState::snapshot_bytes(kStates));
  fill_slot(state, 0, 30);
  fill_slot(state, 1, 40);
  space.restore(3, 1);
  space.restore(1, 0);
  EXPECT_TRUE(is_filled(state, 1, 1));
  EXPECT_TRUE(is_filled(state, 0, 10));
  EXPECT_TRUE(is_filled(state, 2, 20)) << "the others stay as they are";
  save(space, state, stream, 2, 3);
  EXPECT_EQ(space.num_bytes(), 2 * RecurrentState::snapshot_bytes(kStates)) << "used before";
  space.restore(3, 1);
  EXPECT_TRUE(is_filled(state, 1, 20));
}

TEST(SnapshotSpace, AModelWithoutStatesHasEmptyOnes) {
  RecurrentStateOptions none = kStates;
  none.num_layers = 0;
  EXPECT_EQ(RecurrentState::snapshot_bytes(none), 0);
  RecurrentStateOptions held = kStates;
  held.max_held = 0;
  EXPECT_EQ(RecurrentState::snapshot_bytes(kStates), RecurrentState::snapshot_bytes(held)) << "what is held is no part of it";
  EXPECT_EQ(RecurrentState::snapshot_bytes(kStates), RecurrentState::bytes_per_slot(held));
}

TEST(SnapshotSpaceDeathTest, RestoresOnlyWhatWasSaved) {
  test::TestStream stream(1);
  RecurrentState state(kStates);
  SnapshotSpace space(state, stream, 2);
  EXPECT_DEATH(space.restore(1, 0), "snapshot 1 was never saved");
  space.place(1);
  EXPECT_DEATH(space.restore(1, 3), "slot 3 of 3");
}

}  // namespace
}  // namespace ferry
