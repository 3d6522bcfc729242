#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

#include "tests/support/compare.h"
#include "tests/support/op_test.h"

namespace ferry::test {
namespace {

class RowsTest : public OpTest {};
class RowsDeathTest : public RowsTest {};
INSTANTIATE_TEST_SUITE_P(Tables, RowsTest, testing::ValuesIn(op_cases()), op_case_name);
INSTANTIATE_TEST_SUITE_P(Tables, RowsDeathTest, testing::ValuesIn(op_cases()), op_case_name);

TEST_P(RowsTest, EmbedConvertsTheTablesRows) {
  for (const DType table_dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t hidden : {1, 16, 77, 1029}) {
      const TestMatrix embedding = TestMatrix(table_dtype, 23, hidden, 2).fill_random(1);
      std::vector<TokenId> ids;
      for (TokenId i = 0; i < 71; ++i) ids.push_back(i * 7 % 23);
      TestMatrix out(dtype(), 71, hidden, 3);
      table().embed(stream_, {.table = embedding.view(), .ids = ids, .out = out.view()});
      TestMatrix expected(dtype(), 71, hidden);
      for (int64_t r = 0; r < 71; ++r) {
        for (int64_t c = 0; c < hidden; ++c) expected.set(r, c, embedding.get(ids[static_cast<std::size_t>(r)], c));
      }
      EXPECT_TRUE(all_close(out.view(), expected.view(), kExact));
      EXPECT_TRUE(out.padding_intact());
    }
  }
}

TEST_P(RowsTest, GatherRowsCopiesRowsAndRepeats) {
  const TestMatrix x = TestMatrix(dtype(), 9, 1031, 4).fill_random(2);
  std::vector<int32_t> row_idx;
  for (int32_t i = 0; i < 83; ++i) row_idx.push_back(i * 5 % 9);
  TestMatrix out(dtype(), 83, 1031, 1);
  table().gather_rows(stream_, {.x = x.view(), .row_idx = row_idx, .out = out.view()});
  for (int64_t r = 0; r < 83; ++r) {
    const int64_t source = row_idx[static_cast<std::size_t>(r)];
    EXPECT_TRUE(all_close(out.view().rows_from(r, 1), x.view().rows_from(source, 1), kExact));
  }
  EXPECT_TRUE(out.padding_intact());
}

TEST_P(RowsTest, ZeroRowsAreFine) {
  const TestMatrix x = TestMatrix(dtype(), 2, 8).fill(1.0f);
  TestMatrix out(dtype(), 0, 8);
  table().gather_rows(stream_, {.x = x.view(), .row_idx = {}, .out = out.view()});
  table().embed(stream_, {.table = x.view(), .ids = {}, .out = out.view()});
  table().combine(stream_, {.slot_rows = {}, .slot_weights = nullptr, .num_slots = 3, .out = out.view()});
}

TEST_P(RowsDeathTest, RowIndicesAreChecked) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TestMatrix x = TestMatrix(dtype(), 2, 8).fill(1.0f);
  TestMatrix out(dtype(), 1, 8);
  const std::vector<int32_t> bad = {2};
  EXPECT_DEATH(table().gather_rows(serial_stream_, {.x = x.view(), .row_idx = bad, .out = out.view()}), "row index 2");
  EXPECT_DEATH(table().embed(serial_stream_, {.table = x.view(), .ids = bad, .out = out.view()}), "token id 2");
}

TEST_P(RowsTest, KvAppendWritesTheBlocksOfEachSequence) {
  const int64_t num_kv_heads = 3, head_dim = 21, block_tokens = 5, num_blocks = 11;
  const int64_t cache_rows = num_blocks * num_kv_heads * block_tokens;
  TestMatrix keys = TestMatrix(dtype(), cache_rows, head_dim).fill(-1.0f),
             values = TestMatrix(dtype(), cache_rows, head_dim).fill(-2.0f);
  const TestMatrix k = TestMatrix(dtype(), 24, num_kv_heads * head_dim, 2).fill_random(3);
  const TestMatrix v = TestMatrix(dtype(), 24, num_kv_heads * head_dim).fill_random(4);
  // Positions 3 to 12 over blocks 7, 0, 4; position 5 in block 9; positions 0 to 12 over blocks 2, 10, 1. Row 10 is unused.
  const std::vector<SequenceSpan> sequences = {{0, 10, 3}, {23, 1, 5}, {11, 12, 0}};
  const std::vector<std::vector<int32_t>> tables = {{7, 0, 4}, {8, 9}, {2, 10, 1}};
  const std::vector<const int32_t*> block_tables = {tables[0].data(), tables[1].data(), tables[2].data()};
  const KvLayerView cache{keys.view().data, values.view().data, dtype(), num_kv_heads, block_tokens, head_dim};
  table().kv_append(stream_,
                    {.k = k.view(), .v = v.view(), .cache = cache, .sequences = sequences, .block_tables = block_tables});

  TestMatrix expected_keys = TestMatrix(dtype(), cache_rows, head_dim).fill(-1.0f);
  TestMatrix expected_values = TestMatrix(dtype(), cache_rows, head_dim).fill(-2.0f);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (int64_t t = 0; t < sequences[s].num_tokens; ++t) {
      const int64_t position = sequences[s].num_past + t;
      const int64_t block = tables[s][static_cast<std::size_t>(position / block_tokens)];
      for (int64_t c = 0; c < num_kv_heads * head_dim; ++c) {
        const int64_t cache_row = block * num_kv_heads * block_tokens + c / head_dim * block_tokens + position % block_tokens;
        expected_keys.set(cache_row, c % head_dim, k.get(sequences[s].first_row + t, c));
        expected_values.set(cache_row, c % head_dim, v.get(sequences[s].first_row + t, c));
      }
    }
  }
  EXPECT_TRUE(all_close(keys.view(), expected_keys.view(), kExact));
  EXPECT_TRUE(all_close(values.view(), expected_values.view(), kExact));
}

// Pieces of 48 tokens that end with the last token of 65,536, 131,072 and 262,144, each in the first four blocks of the cache.
TEST_P(RowsTest, KvAppendFindsTheLastBlocksOfTheLongestContext) {
  const int64_t head_dim = 8, block_tokens = 16, num_tokens = 48;
  const TestMatrix k = TestMatrix(dtype(), num_tokens, head_dim).fill_random(3);
  for (const int64_t context : {65536, 131072, 262144}) {
    TestMatrix keys = TestMatrix(dtype(), 4 * block_tokens, head_dim).fill(-1.0f), values = keys, expected = keys;
    std::vector<int32_t> blocks(static_cast<std::size_t>(context / block_tokens), 3);
    std::ranges::copy(std::vector<int32_t>{2, 0, 1}, blocks.end() - 3);
    const std::vector<SequenceSpan> sequences = {{0, num_tokens, context - num_tokens}};
    const std::vector<const int32_t*> tables = {blocks.data()};
    const KvLayerView cache{keys.view().data, values.view().data, dtype(), 1, block_tokens, head_dim};
    table().kv_append(stream_, {.k = k.view(), .v = k.view(), .cache = cache, .sequences = sequences, .block_tables = tables});
    for (int64_t t = 0; t < num_tokens; ++t) {
      const int64_t row = blocks[static_cast<std::size_t>((context - num_tokens + t) / block_tokens)] * block_tokens;
      for (int64_t c = 0; c < head_dim; ++c) expected.set(row + t % block_tokens, c, k.get(t, c));
    }
    EXPECT_TRUE(all_close(keys.view(), expected.view(), kExact)) << context;
    EXPECT_TRUE(all_close(values.view(), expected.view(), kExact)) << context;
  }
}

// Products are rounded one by one and added in slot order, so that implementations agree to the bit.
TEST_P(RowsTest, CombineEqualsRefAndTheFormula) {
  for (const int64_t top_k : {1, 2, 10}) {
    for (const int64_t cols : {1, 31, 48, 1027}) {
      const int64_t rows = 29;
      const TestMatrix slots = TestMatrix(dtype(), rows * top_k, cols, 1).fill_random(5);
      std::vector<float> weights = random_floats(static_cast<std::size_t>(rows * top_k), 6);
      std::vector<const std::byte*> slot_rows;
      for (int64_t i = 0; i < rows * top_k; ++i) slot_rows.push_back(slots.view().row_bytes((i * 13 + 5) % (rows * top_k)));
      for (float& w : weights) w = is_f32() ? w : round_to<bfloat16>(w);
      TestMatrix actual(dtype(), rows, cols, 3), expected(dtype(), rows, cols);
      CombineArgs args{.slot_rows = slot_rows, .slot_weights = weights.data(), .num_slots = top_k, .out = actual.view()};
      table().combine(stream_, args);
      args.out = expected.view();
      ref::kOpTable.combine(serial_stream_, args);
      EXPECT_TRUE(all_close(actual.view(), expected.view(), kExact)) << top_k << " slots of " << cols;
      EXPECT_TRUE(actual.padding_intact());
      double sum = 0.0;  // the last element of the last row
      for (int64_t k = 0; k < top_k; ++k) {
        const int64_t slot = (rows - 1) * top_k + k;
        sum += nearest(dtype(), static_cast<double>(weights[static_cast<std::size_t>(slot)]) *
                                    slots.get((slot * 13 + 5) % (rows * top_k), cols - 1));
      }
      EXPECT_NEAR(actual.get(rows - 1, cols - 1), sum, is_f32() ? 3e-6 : std::abs(sum) * 0.00393 + 1e-6);
    }
  }
}

/// The rows of experts that a router could have chosen: distinct ones of a token, skewed to the first.
struct ExpertRows {
  ExpertRows(int64_t num_tokens, int64_t top_k, int64_t num_experts)
      : args{.topk_idx = nullptr, .num_tokens = num_tokens, .top_k = top_k, .num_experts = num_experts} {
    std::mt19937 random(9);
    std::vector<int32_t> experts(static_cast<std::size_t>(num_experts));
    std::iota(experts.begin(), experts.end(), 0);
    for (int64_t t = 0; t < num_tokens; ++t) {
      const bool is_skewed = t % 2 == 0;
      if (!is_skewed) std::shuffle(experts.begin(), experts.end(), random);
      topk_idx.insert(topk_idx.end(), experts.begin(), experts.begin() + top_k);
    }
    row_token.assign(topk_idx.size(), -1);
    slot_row.assign(topk_idx.size(), -1);
    row_runs.assign(topk_idx.size(), RowRun{-1, -1, -1});
    counts.assign(static_cast<std::size_t>(num_experts), -1);
    row_totals.assign(static_cast<std::size_t>(num_experts), 0xfffffffeU);  // about to begin again
  }
  void run(const OpTable& table, Stream& stream) {
    args.topk_idx = topk_idx.data();
    args.row_token = row_token.data();
    args.slot_row = slot_row.data();
    args.row_runs = row_runs.data();
    args.counts = counts.data();
    args.row_totals = row_totals.data();
    table.expert_rows(stream, args);
  }
  std::vector<int32_t> topk_idx, row_token, slot_row, counts;
  std::vector<RowRun> row_runs;
  std::vector<uint32_t> row_totals;
  ExpertRowsArgs args;
};

TEST_P(RowsTest, ExpertRowsAreInTheOrderOfExpertsAndTokens) {
  for (const auto& [num_tokens, top_k, num_experts] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {1, 8, 256}, {3, 2, 5}, {64, 8, 256}, {65, 8, 300}, {700, 10, 512}}) {
    ExpertRows actual(num_tokens, top_k, num_experts), expected(num_tokens, top_k, num_experts);
    if (!table().expert_rows.takes(actual.args)) GTEST_SKIP() << "the host plans for itself";
    actual.run(table(), stream_);
    expected.run(ref::kOpTable, stream_);
    EXPECT_EQ(actual.row_token, expected.row_token) << num_tokens;
    EXPECT_EQ(actual.slot_row, expected.slot_row) << num_tokens;
    EXPECT_EQ(actual.counts, expected.counts) << num_tokens;
    EXPECT_EQ(actual.row_totals, expected.row_totals) << num_tokens;
    int32_t row = 0;
    for (int32_t expert = 0; expert < num_experts; ++expert) {
      for (std::size_t slot = 0; slot < actual.topk_idx.size(); ++slot) {
        if (actual.topk_idx[slot] != expert) continue;
        EXPECT_EQ(actual.slot_row[slot], row);
        const RowRun& run = actual.row_runs[static_cast<std::size_t>(row)];
        EXPECT_EQ(run.group, expert);
        EXPECT_EQ(run.num_rows, actual.counts[static_cast<std::size_t>(expert)]);
        EXPECT_TRUE(run.first_row <= row && row < run.first_row + run.num_rows);
        EXPECT_EQ(actual.row_token[static_cast<std::size_t>(row++)], static_cast<int32_t>(slot) / top_k);
      }
    }
  }
}

TEST_P(RowsTest, CombineOfIndicesEqualsThatOfPointers) {
  const int64_t rows = 7, top_k = 3, cols = 45;
  const TestMatrix slots = TestMatrix(dtype(), rows * top_k, cols, 1).fill_random(5);
  const std::vector<float> weights(static_cast<std::size_t>(rows * top_k), 0.25F);
  std::vector<const std::byte*> slot_rows;
  std::vector<int32_t> slot_row;
  for (int32_t i = 0; i < rows * top_k; ++i) {
    slot_row.push_back((i * 5 + 2) % static_cast<int32_t>(rows * top_k));
    slot_rows.push_back(slots.view().row_bytes(slot_row.back()));
  }
  TestMatrix actual(dtype(), rows, cols, 3), expected(dtype(), rows, cols);
  const CombineArgs args{.slot_rows = {},
                         .rows = slots.view(),
                         .slot_row = slot_row.data(),
                         .slot_weights = weights.data(),
                         .num_slots = top_k,
                         .out = actual.view()};
  (table().combine.takes(args) ? table() : ref::kOpTable).combine(stream_, args);
  ref::kOpTable.combine(stream_,
                        {.slot_rows = slot_rows, .slot_weights = weights.data(), .num_slots = top_k, .out = expected.view()});
  EXPECT_TRUE(all_close(actual.view(), expected.view(), kExact));
  EXPECT_TRUE(actual.padding_intact());
}

TEST_P(RowsTest, CombineEndsATokenAtItsFirstNull) {
  const int64_t cols = 37, num_slots = 3;
  const TestMatrix slots = TestMatrix(dtype(), 3, cols, 1).fill_random(5);
  const auto row = [&](int64_t r) { return slots.view().row_bytes(r); };
  const std::vector<const std::byte*> slot_rows = {row(2), row(0), row(1), row(1), nullptr, nullptr, nullptr, nullptr, nullptr};
  const std::vector<float> weights = {0.5F, 0.25F, 2.0F, 1.0F, NAN, NAN, NAN, NAN, NAN};
  for (const OpTable* ops : {&table(), &ref::kOpTable}) {
    TestMatrix out(dtype(), 3, cols, 3);
    ops->combine(stream_, {.slot_rows = slot_rows, .slot_weights = weights.data(), .num_slots = num_slots, .out = out.view()});
    for (int64_t c = 0; c < cols; ++c) {
      EXPECT_NE(out.get(0, c), 0.0) << "all three";
      EXPECT_EQ(out.get(1, c), slots.get(1, c)) << "one row, as it is";
      EXPECT_EQ(out.get(2, c), 0.0) << "none";
    }
  }
}

}  // namespace
}  // namespace ferry::test
