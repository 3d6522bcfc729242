#include "runtime/model/step_input.h"

#include <gtest/gtest.h>

#include <utility>

namespace ferry {
namespace {

using Ids = std::vector<TokenId>;

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

TEST(MicroBatches, HalvesSaveTheStatesOfTheirRows) {
  const MadeStep step({1, 300});
  const std::vector<StateSave> saves = {{.end_row = 65, .slot = 101, .snapshot = {}},
                                        {.end_row = 129, .slot = 101, .snapshot = {}},
                                        {.end_row = 257, .slot = 101, .snapshot = {}}};
  std::array<MicroBatch, 2> batches;
  const auto used = make_micro_batches({.token_ids = step.token_ids,
                                        .positions = {},
                                        .sequences = step.sequences,
                                        .block_tables = step.tables,
                                        .state_slots = step.slots,
                                        .logit_rows = {},
                                        .saves = saves},
                                       64, batches);
  ASSERT_EQ(used.size(), 2U);
  ASSERT_EQ(used[0].num_tokens, 129);
  ASSERT_EQ(used[0].saves.size(), 2U);
  EXPECT_EQ(used[0].saves[0].end_row, 65);
  EXPECT_EQ(used[0].saves[1].end_row, 129) << "behind its last row";
  ASSERT_EQ(used[1].saves.size(), 1U);
  EXPECT_EQ(used[1].saves[0].end_row, 128);
  EXPECT_EQ(used[1].saves[0].slot, 101);
}

/// A prompt with media whose embeddings are [1] each: 100 * medium + row.
struct MadePrompt {
  MadePrompt(Ids ids, const std::vector<Grid>& grids, std::size_t first_video = SIZE_MAX) {
    std::vector<std::shared_ptr<const Medium>> media;
    for (std::size_t m = 0; m < grids.size(); ++m) {
      const bool is_video = m >= first_video;
      media.push_back(
          std::make_shared<const Medium>(Medium{.kind = is_video ? Medium::Kind::kVideo : Medium::Kind::kPicture,
                                                .grid = grids[m],
                                                .frames = {},
                                                .times = std::vector<double>(static_cast<std::size_t>(grids[m].t))}));
      Matrix values(DType::kF32, grids[m].num_patches() / 4, 1);
      for (int64_t r = 0; r < values.rows(); ++r)
        values.view().row<float>(r)[0] = static_cast<float>(100 * static_cast<int64_t>(m) + r);
      embedded.embeddings.push_back(std::make_shared<const Matrix>(std::move(values)));
    }
    const auto stamp = [](std::string_view) { return Ids{4}; };
    MediaPrompt prompt = place_media(ids, media, {.image = 90, .video = 91, .vision_start = 80, .vision_end = 81}, 2, stamp);
    tokens = prompt.ids;
    embedded.prompt = prompt.media;
    for (int64_t more = 0; more < 8; ++more) tokens.push_back(5);
  }

  /// Rows for tokens [past + offset, past + offset + num_tokens).
  SequenceRows rows(int64_t past, int64_t num_tokens, int64_t offset = 0) const {
    return {.tokens = std::span(tokens).subspan(static_cast<std::size_t>(past + offset), static_cast<std::size_t>(num_tokens)),
            .num_past = past,
            .media = &embedded,
            .token_offset = offset};
  }

  Ids tokens;
  EmbeddedMedia embedded;
};

/// "row:value,value" of each piece that is given.
std::string given_of(const StepInput& input) {
  std::string text;
  for (const GivenRows& given : input.given) {
    text += (text.empty() ? "" : " ") + std::to_string(given.first_row) + ":";
    for (int64_t r = 0; r < given.embeddings.rows; ++r)
      text += (r == 0 ? "" : ",") + std::to_string(static_cast<int>(given.embeddings.row<float>(r)[0]));
  }
  return text;
}

std::vector<int32_t> axis_of(const StepInput& input, std::size_t axis) {
  const auto length = input.token_ids.size();
  const auto part = input.positions.subspan(axis * length, length);
  return {part.begin(), part.end()};
}

// One picture of 2 x 2 tokens between two tokens of text: its rows and columns, then on from the longer side.
TEST(StepRows, PicturesHavePositionsOfTheirOwn) {
  const MadePrompt prompt({7, 90, 8}, {{1, 4, 4}});
  StepRows rows;
  rows.add(prompt.rows(0, 6));
  EXPECT_EQ((std::vector<int32_t>{0, 1, 1, 1, 1, 3}), axis_of(rows.input(64), 0));
  EXPECT_EQ((std::vector<int32_t>{0, 1, 1, 2, 2, 3}), axis_of(rows.input(64), 1));
  EXPECT_EQ((std::vector<int32_t>{0, 1, 2, 1, 2, 3}), axis_of(rows.input(64), 2));
  EXPECT_EQ("1:0,1,2,3", given_of(rows.input(64)));
  rows.clear();
  rows.add(prompt.rows(5, 4));
  for (std::size_t axis = 0; axis < 3; ++axis)
    EXPECT_EQ((std::vector<int32_t>{3, 4, 5, 6}), axis_of(rows.input(64), axis)) << "the prompt's end, and what follows";
  EXPECT_EQ("", given_of(rows.input(64)));
}

TEST(StepRows, PositionsOfSeveralSequencesLieAxisByAxis) {
  const MadePrompt prompt({7, 90, 8}, {{1, 4, 4}});
  const Ids text{1, 2};
  StepRows rows;
  rows.add({.tokens = text, .num_past = 10});
  rows.add(prompt.rows(3, 3));
  const StepInput input = rows.input(64);
  ASSERT_EQ(15U, input.positions.size());
  EXPECT_EQ((std::vector<int32_t>{10, 11, 1, 1, 3}), axis_of(input, 0));
  EXPECT_EQ((std::vector<int32_t>{10, 11, 2, 2, 3}), axis_of(input, 1));
  EXPECT_EQ((std::vector<int32_t>{10, 11, 1, 2, 3}), axis_of(input, 2));
  EXPECT_EQ("2:2,3", given_of(input));
}

TEST(StepRows, PositionsCountOnToTheEndOfTheLongestContext) {
  const Ids text{1, 2, 3};
  StepRows rows;
  rows.add({.tokens = text, .num_past = 131071});
  rows.add({.tokens = text, .num_past = 262141});
  const StepInput input = rows.input(64);
  for (std::size_t axis = 0; axis < 3; ++axis)
    EXPECT_EQ((std::vector<int32_t>{131071, 131072, 131073, 262141, 262142, 262143}), axis_of(input, axis));
  EXPECT_EQ(262141, input.sequences[1].num_past);
}

TEST(StepRows, APieceHasItsPartOfAPicture) {
  const MadePrompt prompt({7, 90, 8, 90, 9}, {{1, 4, 4}, {1, 4, 8}});  // tokens 1 to 4, 6 to 13
  const std::vector<std::pair<std::pair<int64_t, int64_t>, std::string>> pieces{
      {{0, 1}, ""},    {{0, 2}, "1:0"},       {{2, 2}, "0:1,2"},
      {{4, 2}, "0:3"}, {{4, 3}, "0:3 2:100"}, {{8, 6}, "0:102,103,104,105,106,107"},
      {{5, 1}, ""},    {{14, 5}, ""},         {{3, 12}, "0:2,3 3:100,101,102,103,104,105,106,107"}};
  for (const auto& [piece, expected] : pieces) {
    StepRows rows;
    rows.add(prompt.rows(piece.first, piece.second));
    EXPECT_EQ(expected, given_of(rows.input(64))) << piece.first << " + " << piece.second;
  }
}

// A draft layer's row i reads the token behind the one whose position it has.
TEST(StepRows, AnOffsetMovesTokensAndNotPositions) {
  const MadePrompt prompt({7, 90, 8}, {{1, 4, 4}});
  StepRows rows;
  rows.add(prompt.rows(0, 5, 1));
  const StepInput input = rows.input(64);
  EXPECT_EQ((std::vector<int32_t>{0, 1, 1, 2, 2}), axis_of(input, 1));
  EXPECT_EQ("0:0,1,2,3", given_of(input));
  EXPECT_EQ(90, input.token_ids[3]);
  EXPECT_EQ(8, input.token_ids[4]);
  rows.clear();
  rows.add(prompt.rows(2, 4, 1));
  EXPECT_EQ("0:2,3", given_of(rows.input(64)));
  rows.clear();
  rows.add(prompt.rows(4, 4, 1));
  EXPECT_EQ("", given_of(rows.input(64)));
}

// Each step of time of a video lies between marks and behind its time stamp.
TEST(StepRows, StepsOfAVideoAreGivenOneByOne) {
  const MadePrompt prompt({90, 91, 8}, {{1, 2, 4}, {3, 2, 4}}, 1);  // 90 90 | 4 80 91 91 81 | ... | 8
  StepRows rows;
  rows.add(prompt.rows(0, 18));
  EXPECT_EQ("0:0,1 4:100,101 9:102,103 14:104,105", given_of(rows.input(64)));
  rows.clear();
  rows.add(prompt.rows(10, 5));
  EXPECT_EQ("0:103 4:104", given_of(rows.input(64)));
}

TEST(StepRows, NothingIsLeftOfTheLastStep) {
  const MadePrompt prompt({7, 90, 8}, {{1, 4, 4}});
  StepRows rows;
  rows.add(prompt.rows(0, 6));
  rows.clear();
  const Ids text{1, 2};
  rows.add({.tokens = text});
  const StepInput input = rows.input(64);
  EXPECT_EQ(0U, input.given.size());
  EXPECT_EQ((std::vector<int32_t>{0, 1, 0, 1, 0, 1}), (std::vector<int32_t>(input.positions.begin(), input.positions.end())));
}

}  // namespace
}  // namespace ferry
