#include "runtime/model/step_input.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

/// A step of sequences with so many tokens each, the s-th with 10 s tokens before them.
struct MadeStep {
  explicit MadeStep(const std::vector<int64_t>& lengths) {
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      sequences.push_back({static_cast<int64_t>(token_ids.size()), lengths[s], 10 * static_cast<int64_t>(s)});
      token_ids.resize(token_ids.size() + static_cast<std::size_t>(lengths[s]));
      tables.push_back(&blocks[s]);
      slots.push_back(100 + static_cast<int32_t>(s));
    }
  }
  std::vector<MicroBatch> cut(int64_t min_rows, int64_t delta_chunk = 64) const {
    std::array<MicroBatch, 2> batches;
    const auto used = make_micro_batches({.token_ids = token_ids,
                                          .positions = {},
                                          .sequences = sequences,
                                          .block_tables = tables,
                                          .state_slots = slots,
                                          .logit_rows = {},
                                          .delta_chunk = delta_chunk},
                                         min_rows, batches);
    return {used.begin(), used.end()};
  }
  /// Rows of the first half, or 0 if the step stays whole.
  int64_t first_half(int64_t min_rows, int64_t delta_chunk = 64) const {
    const std::vector<MicroBatch> batches = cut(min_rows, delta_chunk);
    return batches.size() == 1 ? 0 : batches.front().num_tokens;
  }

  int32_t blocks[16] = {};
  std::vector<TokenId> token_ids;
  std::vector<SequenceSpan> sequences;
  std::vector<const int32_t*> tables;
  std::vector<int32_t> slots;
};

TEST(MicroBatches, AStepStaysWholeIfItsHalvesWouldBeTooSmall) {
  EXPECT_EQ(MadeStep({512}).first_half(0), 0) << "0 is never";
  EXPECT_EQ(MadeStep({512}).first_half(257), 0);
  EXPECT_EQ(MadeStep({512}).first_half(256), 256);
  EXPECT_EQ(MadeStep({100, 412}).first_half(256), 0) << "the nearest cut is at row 228";
  EXPECT_EQ(MadeStep({}).first_half(1), 0);
  EXPECT_EQ(MadeStep({1}).first_half(1), 0);
}

TEST(MicroBatches, TheCutIsAtTheAllowedRowNearestToTheMiddle) {
  EXPECT_EQ(MadeStep({1, 1, 1, 1, 1}).first_half(2), 2) << "between sequences";
  EXPECT_EQ(MadeStep({5, 200}).first_half(32), 133) << "behind two chunks of the second";
  EXPECT_EQ(MadeStep({300}).first_half(32), 128);
  EXPECT_EQ(MadeStep({300}).first_half(32, 10), 150);
}

TEST(MicroBatches, RowsOfTheRecurrentFormStayTogether) {
  MadeStep step({1, 200, 1});
  step.sequences[1].form = DeltaForm::kRecurrent;
  step.sequences[1].num_replayed = 2;
  step.sequences[1].num_held = 150;
  EXPECT_EQ(step.first_half(2), 0);
  const std::vector<MicroBatch> halves = step.cut(1);
  ASSERT_EQ(halves.size(), 2U);
  const SequenceSpan& whole = halves[halves[0].num_tokens == 1 ? 1 : 0].sequences[halves[0].num_tokens == 1 ? 0 : 1];
  EXPECT_EQ(whole.num_tokens, 200);
  EXPECT_EQ(whole.num_replayed, 2);
  EXPECT_EQ(whole.num_held, 150);
}

TEST(MicroBatches, HalvesHaveTheirSequencesTablesAndSlots) {
  const MadeStep step({1, 300, 20});
  const std::vector<MicroBatch> halves = step.cut(64);
  ASSERT_EQ(halves.size(), 2U);
  EXPECT_EQ(halves[0].first_row, 0);
  EXPECT_EQ(halves[0].num_tokens, 129);
  EXPECT_EQ(halves[0].state_slots, (std::vector<int32_t>{100, 101}));
  ASSERT_EQ(halves[0].sequences.size(), 2U);
  EXPECT_EQ(halves[0].sequences[1].first_row, 1);
  EXPECT_EQ(halves[0].sequences[1].num_tokens, 128);
  EXPECT_EQ(halves[0].sequences[1].num_past, 10);
  EXPECT_EQ(halves[1].first_row, 129);
  EXPECT_EQ(halves[1].num_tokens, 192);
  EXPECT_EQ(halves[1].state_slots, (std::vector<int32_t>{101, 102}));
  EXPECT_EQ(halves[1].block_tables, (std::vector<const int32_t*>{&step.blocks[1], &step.blocks[2]}));
  EXPECT_EQ(halves[1].sequences[0].first_row, 0);
  EXPECT_EQ(halves[1].sequences[0].num_tokens, 172);
  EXPECT_EQ(halves[1].sequences[0].num_past, 138);
  EXPECT_EQ(halves[1].sequences[1].first_row, 172);
  EXPECT_EQ(halves[1].sequences[1].num_past, 20);
}

}  // namespace
}  // namespace ferry
