#include <gtest/gtest.h>

#include <limits>

#include "tests/support/compare.h"
#include "tests/support/op_test.h"

// Ops that are made of others (kernels/ops.h): where an implementation has one of its own, its bits are those of its parts.

namespace ferry::test {
namespace {

class CompositesTest : public OpTest {};
INSTANTIATE_TEST_SUITE_P(Tables, CompositesTest, testing::ValuesIn(op_cases()), op_case_name);

struct NormedRows {
  NormedRows(DType dtype, int64_t rows, int64_t cols, uint32_t seed)
      : residual(TestMatrix(dtype, rows, cols, 3).fill_random(seed)),
        added(TestMatrix(dtype, rows, cols, 1).fill_random(seed + 1)),
        normed(dtype, rows, cols, 2),
        weight(random_floats(static_cast<std::size_t>(cols), seed + 2)),
        codes(static_cast<std::size_t>(rows * quantized_cols(cols)), std::byte{0x5a}),
        scales(static_cast<std::size_t>(rows), -1.0F) {}

  ResidualNormArgs args(bool adds, bool rounds_first, bool wants_codes) {
    ResidualNormArgs args{
        .residual = residual.view(),
        .norm = {
            .x = residual.view(), .weight = weight.data(), .eps = 1e-6F, .rounds_first = rounds_first, .out = normed.view()}};
    if (adds) args.added = added.view();
    const int64_t cols = quantized_cols(args.norm.out.cols);
    if (wants_codes)
      args.codes = {.x = normed.view(),
                    .codes = {codes.data(), DType::kI8, args.norm.out.rows, cols, cols, Space::kHost},
                    .scales = scales.data()};
    return args;
  }

  TestMatrix residual, added, normed;
  std::vector<float> weight;
  std::vector<std::byte> codes;
  std::vector<float> scales;
};

TEST_P(CompositesTest, ResidualNormIsItsParts) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 67}, {2, 512}, {5, 513}, {1, 2048}, {7, 2051}, {2, 4104}}) {
    for (int choice = 0; choice < 8; ++choice) {
      const bool adds = (choice & 1) != 0, rounds_first = (choice & 2) != 0, wants_codes = (choice & 4) != 0;
      NormedRows actual(dtype(), rows, cols, 1), expected(dtype(), rows, cols, 1);
      const ResidualNormArgs args = actual.args(adds, rounds_first, wants_codes);
      if (!table().residual_norm.takes(args)) GTEST_SKIP() << "runs part by part";
      table().residual_norm(stream_, args);
      const ResidualNormArgs parts = expected.args(adds, rounds_first, wants_codes);
      if (adds) table().add(stream_, {.a = parts.residual, .b = parts.added, .out = parts.residual});
      table().rms_norm(stream_, parts.norm);
      if (wants_codes) table().quantize_rows(stream_, parts.codes);
      const std::string what = std::to_string(rows) + " x " + std::to_string(cols) + ", choice " + std::to_string(choice);
      EXPECT_TRUE(all_close(actual.residual.view(), expected.residual.view(), kExact)) << what;
      EXPECT_TRUE(all_close(actual.normed.view(), expected.normed.view(), kExact)) << what;
      EXPECT_EQ(actual.codes, expected.codes) << what;
      EXPECT_EQ(actual.scales, expected.scales) << what;
      EXPECT_TRUE(actual.residual.padding_intact() && actual.normed.padding_intact()) << what;
    }
  }
}

/// Experts' rows in an order of their own, of which each token has three, and a shared expert.
struct ExpertRows {
  static constexpr int64_t kSlots = 3;
  ExpertRows(DType dtype, int64_t num_tokens, int64_t cols)
      : rows(TestMatrix(dtype, num_tokens * kSlots, cols, 1).fill_random(31)),
        shared(TestMatrix(dtype, num_tokens, cols).fill_random(32)),
        gate(TestMatrix(dtype, num_tokens, 1, 2).fill_random(33)),
        sum(dtype, num_tokens, cols),
        weights(random_floats(static_cast<std::size_t>(num_tokens * kSlots), 34)) {
    for (int64_t i = 0; i < rows.view().rows; ++i) slot_row.push_back(static_cast<int32_t>(rows.view().rows - 1 - i));
  }
  ExpertSumArgs args(bool has_shared) {
    ExpertSumArgs args{.combine = {.slot_rows = {},
                                   .rows = rows.view(),
                                   .slot_row = slot_row.data(),
                                   .slot_weights = weights.data(),
                                   .num_slots = kSlots,
                                   .out = sum.view()}};
    if (has_shared) args.merge = {.routed = sum.view(), .shared = shared.view(), .gate = gate.view(), .out = sum.view()};
    return args;
  }
  TestMatrix rows, shared, gate, sum;
  std::vector<float> weights;
  std::vector<int32_t> slot_row;
};

TEST_P(CompositesTest, ResidualNormOfExpertsIsItsParts) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 64}, {3, 67}, {5, 2048}, {2, 4104}}) {
    for (const bool has_shared : {false, true}) {
      NormedRows actual(dtype(), rows, cols, 1), expected(dtype(), rows, cols, 1);
      ExpertRows experts(dtype(), rows, cols), experts_again(dtype(), rows, cols);
      const ExpertSumArgs sum = experts.args(has_shared), parts_sum = experts_again.args(has_shared);
      ResidualNormArgs args = actual.args(/*adds=*/true, /*rounds_first=*/false, /*wants_codes=*/true);
      args.added = experts.sum.view();
      args.experts = &sum;
      if (!table().residual_norm.takes(args)) GTEST_SKIP() << "runs part by part";
      table().residual_norm(stream_, args);
      const ResidualNormArgs parts = expected.args(true, false, true);
      table().combine(stream_, parts_sum.combine);
      if (has_shared) table().shared_expert_merge(stream_, parts_sum.merge);
      table().add(stream_, {.a = parts.residual, .b = experts_again.sum.view(), .out = parts.residual});
      table().rms_norm(stream_, parts.norm);
      table().quantize_rows(stream_, parts.codes);
      EXPECT_TRUE(all_close(actual.residual.view(), expected.residual.view(), kExact)) << cols << has_shared;
      EXPECT_TRUE(all_close(actual.normed.view(), expected.normed.view(), kExact)) << cols << has_shared;
      EXPECT_EQ(actual.codes, expected.codes) << cols << has_shared;
    }
  }
}

struct Choice {
  Choice(int64_t num_tokens, int64_t top_k, int64_t num_experts)
      : topk_idx(static_cast<std::size_t>(num_tokens * top_k), -1),
        row_token(topk_idx),
        slot_row(topk_idx),
        counts(static_cast<std::size_t>(num_experts), -1),
        topk_weights(topk_idx.size(), -1.0F),
        row_runs(topk_idx.size()),
        row_totals(static_cast<std::size_t>(num_experts), 7) {}

  ExpertChoiceArgs args(ConstMatrixView logits, int64_t top_k, const RouterTopkArgs& rule) {
    RouterTopkArgs router = rule;
    router.logits = logits;
    router.top_k = top_k;
    router.topk_idx = topk_idx.data();
    router.topk_weights = topk_weights.data();
    return {.router = router,
            .rows = {.topk_idx = topk_idx.data(),
                     .num_tokens = logits.rows,
                     .top_k = top_k,
                     .num_experts = logits.cols,
                     .row_token = row_token.data(),
                     .slot_row = slot_row.data(),
                     .counts = counts.data(),
                     .row_runs = row_runs.data(),
                     .row_totals = row_totals.data()}};
  }
  std::vector<int32_t> runs() const {
    std::vector<int32_t> all;
    for (const RowRun& run : row_runs) all.insert(all.end(), {run.group, run.first_row, run.num_rows});
    return all;
  }

  std::vector<int32_t> topk_idx, row_token, slot_row, counts;
  std::vector<float> topk_weights;
  std::vector<RowRun> row_runs;
  std::vector<uint32_t> row_totals;
};

TEST_P(CompositesTest, ChoosingExpertsIsItsParts) {
  constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [num_tokens, top_k, num_experts] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {1, 8, 256}, {5, 3, 67}, {64, 8, 256}, {3, 40, 512}}) {
    TestMatrix logits = TestMatrix(dtype(), num_tokens, num_experts, 5).fill_random(3, 2.0F);
    logits.set(0, 0, num_experts > 1 ? kNoNumber : 0.0F);
    if (num_tokens > 2) {  // ties, and a row of nothing
      for (int64_t e = 0; e < num_experts; ++e) logits.set(1, e, static_cast<float>(e % 7));
      for (int64_t e = 0; e < num_experts; ++e) logits.set(2, e, kNoNumber);
    }
    const std::vector<float> bias = random_floats(static_cast<std::size_t>(num_experts), 4);
    for (const RouterTopkArgs& rule :
         {RouterTopkArgs{}, RouterTopkArgs{.is_sigmoid = true, .bias = bias.data(), .sum_eps = 1e-6F, .scale = 2.5F}}) {
      Choice actual(num_tokens, top_k, num_experts), expected(num_tokens, top_k, num_experts);
      const ExpertChoiceArgs args = actual.args(logits.view(), top_k, rule);
      if (!table().choose_experts.takes(args)) GTEST_SKIP() << "runs part by part";
      table().choose_experts(stream_, args);
      const ExpertChoiceArgs parts = expected.args(logits.view(), top_k, rule);
      table().router_topk(stream_, parts.router);
      table().expert_rows(stream_, parts.rows);
      EXPECT_EQ(actual.topk_idx, expected.topk_idx) << num_tokens;
      EXPECT_EQ(actual.topk_weights, expected.topk_weights) << num_tokens;
      EXPECT_EQ(actual.row_token, expected.row_token) << num_tokens;
      EXPECT_EQ(actual.slot_row, expected.slot_row) << num_tokens;
      EXPECT_EQ(actual.counts, expected.counts) << num_tokens;
      EXPECT_EQ(actual.runs(), expected.runs()) << num_tokens;
      EXPECT_EQ(actual.row_totals, expected.row_totals) << num_tokens;
    }
  }
}

struct MixShape {
  int64_t num_k_heads, num_v_heads, k_dim, v_dim, kernel;
  int64_t channels() const { return 2 * num_k_heads * k_dim + num_v_heads * v_dim; }
};

/// A step of sequences with one row each, with what it changes.
struct DeltaStep {
  DeltaStep(DType dtype, const MixShape& s, int64_t num_rows)
      : shape(s),
        qkv(TestMatrix(dtype, num_rows, s.channels()).fill_random(1)),
        conv_out(dtype, num_rows, s.channels()),
        a(TestMatrix(dtype, num_rows, s.num_v_heads, 1).fill_random(2)),
        b(TestMatrix(dtype, num_rows, s.num_v_heads).fill_random(3)),
        gate(TestMatrix(dtype, num_rows * s.num_v_heads, s.v_dim).fill_random(4)),
        out(dtype, num_rows, s.num_v_heads * s.v_dim),
        conv_weight(random_floats(static_cast<std::size_t>(s.channels() * s.kernel), 5)),
        a_log(random_floats(static_cast<std::size_t>(s.num_v_heads), 6)),
        dt_bias(random_floats(static_cast<std::size_t>(s.num_v_heads), 7)),
        norm_weight(random_floats(static_cast<std::size_t>(s.v_dim), 8)),
        decay(static_cast<std::size_t>(num_rows * s.num_v_heads)),
        beta(decay) {
    for (int64_t r = 0; r < num_rows; ++r) {
      const auto seed = static_cast<uint32_t>(r);
      sequences.push_back({.first_row = r, .num_tokens = 1, .num_past = 9, .form = DeltaForm::kRecurrent});
      conv_states.push_back(TestMatrix(dtype, s.kernel - 1, s.channels()).fill_random(10 + seed));
      states.push_back(random_floats(static_cast<std::size_t>(s.num_v_heads * s.k_dim * s.v_dim), 20 + seed, 0.3F));
    }
    for (TestMatrix& state : conv_states) conv_pointers.push_back(state.view().data);
    for (std::vector<float>& state : states) state_pointers.push_back(state.data());
  }

  GatedDeltaMixArgs args() {
    const MatrixView heads = out.view().split_rows(shape.num_v_heads);
    return {.conv = {.x = qkv.view(),
                     .weight = conv_weight.data(),
                     .kernel = shape.kernel,
                     .sequences = sequences,
                     .states = conv_pointers,
                     .held = {},
                     .out = conv_out.view()},
            .gates = {.a = a.view(),
                      .b = b.view(),
                      .a_log = a_log.data(),
                      .dt_bias = dt_bias.data(),
                      .decay = decay.data(),
                      .beta = beta.data()},
            .rule = {.qkv = conv_out.view(),
                     .decay = decay.data(),
                     .beta = beta.data(),
                     .num_k_heads = shape.num_k_heads,
                     .num_v_heads = shape.num_v_heads,
                     .k_dim = shape.k_dim,
                     .v_dim = shape.v_dim,
                     .chunk = 64,
                     .sequences = sequences,
                     .states = state_pointers,
                     .held = {},
                     .out = out.view()},
            .norm = {.x = heads,
                     .gate = gate.view(),
                     .weight = norm_weight.data(),
                     .weight_dtype = DType::kF32,
                     .eps = 1e-6F,
                     .out = heads}};
  }

  MixShape shape;
  TestMatrix qkv, conv_out, a, b, gate, out;
  std::vector<float> conv_weight, a_log, dt_bias, norm_weight, decay, beta;
  std::vector<SequenceSpan> sequences;
  std::vector<TestMatrix> conv_states;
  std::vector<std::vector<float>> states;
  std::vector<std::byte*> conv_pointers;
  std::vector<float*> state_pointers;
};

TEST_P(CompositesTest, GatedDeltaMixIsItsParts) {
  for (const MixShape& shape : {MixShape{2, 4, 128, 128, 4}, {1, 1, 24, 8, 4}, {2, 2, 17, 36, 2}, {1, 4, 64, 96, 1}}) {
    for (const int64_t num_rows : {1, 3}) {
      DeltaStep actual(dtype(), shape, num_rows), expected(dtype(), shape, num_rows);
      const GatedDeltaMixArgs args = actual.args();
      if (!table().gated_delta_mix.takes(args)) GTEST_SKIP() << "runs part by part";
      table().gated_delta_mix(stream_, args);
      const GatedDeltaMixArgs parts = expected.args();
      table().causal_conv1d(stream_, parts.conv);
      table().delta_gates(stream_, parts.gates);
      table().gated_delta_rule(stream_, parts.rule);
      table().gated_rms_norm(stream_, parts.norm);
      EXPECT_TRUE(all_close(actual.out.view(), expected.out.view(), kExact)) << shape.k_dim << ", rows " << num_rows;
      EXPECT_EQ(actual.states, expected.states) << shape.k_dim;
      for (std::size_t s = 0; s < actual.states.size(); ++s)
        EXPECT_TRUE(all_close(actual.conv_states[s].view(), expected.conv_states[s].view(), kExact)) << shape.k_dim;
    }
  }
}

TEST_P(CompositesTest, GatedDeltaMixOfLongerOrHeldRowsRunsPartByPart) {
  DeltaStep step(dtype(), {1, 2, 16, 16, 4}, 2);
  const GatedDeltaMixArgs args = step.args();
  if (!table().gated_delta_mix.takes(args)) GTEST_SKIP() << "always runs part by part";
  step.sequences[1].num_replayed = 1;
  EXPECT_FALSE(table().gated_delta_mix.takes(args));
  step.sequences[1].num_replayed = 0;
  step.sequences[1].form = DeltaForm::kChunk;
  EXPECT_FALSE(table().gated_delta_mix.takes(args));
}

}  // namespace
}  // namespace ferry::test
