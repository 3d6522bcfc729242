#include "runtime/model/mixers/state_waves.h"

#include <gtest/gtest.h>

#include <string>

namespace ferry {
namespace {

/// Sequences of so many rows in slots 10, 11, …, and saves behind rows of them.
MicroBatch batch_of(const std::vector<int64_t>& lengths, const std::vector<std::pair<int64_t, int32_t>>& saves) {
  MicroBatch batch;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    batch.sequences.push_back(
        {.first_row = batch.num_tokens, .num_tokens = lengths[s], .num_past = 1000 * std::ssize(batch.sequences)});
    batch.state_slots.push_back(10 + static_cast<int32_t>(s));
    batch.num_tokens += lengths[s];
  }
  for (const auto& [end_row, slot] : saves) batch.saves.push_back({.end_row = end_row, .slot = slot, .snapshot = {}});
  return batch;
}

/// Waves as "sequence:first+num@past", each with what it saves behind it.
std::string waves_of(StateWaves& waves, const MicroBatch& batch) {
  waves.cut(batch);
  std::string text;
  for (std::size_t wave = 0; wave < waves.num_waves(); ++wave) {
    text += wave > 0 ? " | " : "";
    std::vector<int32_t> slots;
    waves.choose(wave, std::span<const int32_t>(batch.state_slots), slots);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const SequenceSpan& span = waves.spans(wave)[i];
      text += (i > 0 ? " " : "") + std::to_string(slots[i]) + ":" + std::to_string(span.first_row) + "+" +
              std::to_string(span.num_tokens) + "@" + std::to_string(span.num_past);
    }
    for (const StateSave& save : waves.saves(wave)) text += " s" + std::to_string(save.slot);
  }
  return text;
}

TEST(StateWaves, EachSequenceIsCutWhereItIsSaved) {
  StateWaves waves;
  EXPECT_EQ(waves_of(waves, batch_of({100, 200}, {{64, 10}, {228, 11}, {292, 11}})),
            "10:0+64@0 11:100+128@1000 s10 s11 | 10:64+36@64 11:228+64@1128 s11 | 11:292+8@1192");
}

TEST(StateWaves, ASaveBehindTheLastRowCutsNothing) {
  StateWaves waves;
  EXPECT_EQ(waves_of(waves, batch_of({1, 64, 5}, {{65, 11}})), "10:0+1@0 11:1+64@1000 12:65+5@2000 s11");
}

TEST(StateWaves, NothingIsLeftOfTheBatchBefore) {
  StateWaves waves;
  waves_of(waves, batch_of({100, 200}, {{64, 10}, {228, 11}, {292, 11}}));
  EXPECT_EQ(waves_of(waves, batch_of({7, 130}, {{71, 11}})), "10:0+7@0 11:7+64@1000 s11 | 11:71+66@1064");
}

TEST(StateWavesDeathTest, SavesBelongToSequences) {
  StateWaves waves;
  EXPECT_DEATH(waves.cut(batch_of({100}, {{164, 10}})), "behind row 164, of no sequence");
  EXPECT_DEATH(waves.cut(batch_of({100, 100}, {{64, 11}})), "slot 11 is saved behind row 64");
  MicroBatch holding = batch_of({4}, {{2, 10}});
  holding.sequences[0].num_held = 2;
  EXPECT_DEATH(waves.cut(holding), "slot 10 is saved");
}

}  // namespace
}  // namespace ferry
