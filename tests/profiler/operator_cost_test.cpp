#include "profiler/report/operator_cost.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

ModelFacts small_model() {
  return {.dtype_bytes = 2,
          .weight_bytes = 2,
          .mixer_bytes = 1,
          .shared_bytes = 2,
          .head_bytes = 0.5,
          .expert_bytes = 0.5,
          .hidden_dim = 10,
          .vocab_size = 100,
          .num_heads = 3,
          .num_kv_heads = 1,
          .head_dim = 4,
          .num_k_heads = 1,
          .num_v_heads = 2,
          .k_dim = 3,
          .v_dim = 5,
          .conv_channels = 16,
          .conv_kernel = 4,
          .num_experts = 6,
          .top_k = 2,
          .intermediate_dim = 7,
          .shared_intermediate_dim = 9};
}

void expect_cost(Zone zone, uint32_t a, uint32_t b, int64_t sequences, double flop, double bytes) {
  const OperatorCost cost = operator_cost(small_model(), zone, a, b, sequences);
  EXPECT_DOUBLE_EQ(cost.flop, flop) << zone_info(zone).name;
  EXPECT_DOUBLE_EQ(cost.bytes, bytes) << zone_info(zone).name;
}

TEST(OperatorCostTest, Projections) {
  expect_cost(Zone::kOProj, 3, 0, 1, 2 * 3 * 12 * 10, 12 * 10 * 1 + 3 * (12 + 10) * 2);
  expect_cost(Zone::kQProj, 1, 0, 1, 2 * 10 * 24, 10 * 24 * 1 + (10 + 24) * 2);  // q and its gate
  expect_cost(Zone::kOutProj, 2, 0, 1, 2 * 2 * 10 * 10, 10 * 10 * 1 + 2 * (10 + 10) * 2);
  expect_cost(Zone::kLmHead, 1, 0, 1, 2 * 10 * 100, 10 * 100 * 0.5 + 110 * 2);
}

TEST(OperatorCostTest, GroupedMatmulReadsActiveExpertsOnly) {
  // Gate, up and down together: 6 T H I operations and 3 H I weights for each active expert; SwiGLU leaves one output a pair.
  constexpr double kSwiglu = 5 * 5 * 7;
  expect_cost(Zone::kGroupedGateUp, 5, 4, 1, 4 * 5 * 10 * 7 + kSwiglu, 4 * 2 * 10 * 7 * 0.5 + 5 * (10 + 7) * 2);
  expect_cost(Zone::kGroupedDown, 5, 4, 1, 2 * 5 * 10 * 7, 4 * 10 * 7 * 0.5 + 5 * (7 + 10) * 2);
}

TEST(OperatorCostTest, AttentionReadsItsCacheOncePerSequence) {
  // 2000 keys seen by two rows: of two sequences each reads its own 1000, of one sequence both read the same.
  expect_cost(Zone::kAttention, 2, 2, 2, 4 * 12 * 2000.0, 2 * (2000.0 * 2 * 4 + 2 * 2 * 12));
  expect_cost(Zone::kAttention, 2, 2, 1, 4 * 12 * 2000.0, 2 * (1000.0 * 2 * 4 + 2 * 2 * 12));
}

TEST(OperatorCostTest, DeltaRuleMovesItsStateOncePerSequence) {
  const double state = 2 * 3 * 5;
  expect_cost(Zone::kRecurrentDeltaRule, 4, 4, 4, 7 * 4 * state, 2 * 4 * 4 * state + 4 * ((16 + 10) * 2 + 2 * 4 * 2));
  expect_cost(Zone::kChunkDeltaRule, 4, 1, 1, 7 * 4 * state, 2 * 4 * state + 4 * ((16 + 10) * 2 + 2 * 4 * 2));
}

TEST(OperatorCostTest, NormsOfHeadsHaveAHeadPerRow) {
  expect_cost(Zone::kQkNorm, 6, 0, 1, 4 * 6 * 4, 2 * 6 * 4 * 2);
  expect_cost(Zone::kGatedNorm, 6, 0, 1, 8 * 6 * 5, 3 * 6 * 5 * 2);
  expect_cost(Zone::kSigmoidGate, 6, 0, 1, 4 * 6 * 4, 3 * 6 * 4 * 2);
}

TEST(OperatorCostTest, WhatHasNoFormulaCostsNothing) {
  expect_cost(Zone::kSchedule, 9, 9, 1, 0, 0);
  expect_cost(Zone::kDispatch, 9, 9, 1, 0, 0);
  expect_cost(Zone::kExperts, 9, 9, 1, 0, 0);
  expect_cost(Zone::kWaitCombine, 9, 9, 1, 0, 0);
}

}  // namespace
}  // namespace ferry
