#include "runtime/model/operators.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string_view>

namespace ferry {
namespace {

constexpr double kW4 = 0.5 + 2.0 / 64;  // bytes of a weight of 4 bits with its share of a group's scale

/// A layer of every kind; every dimension a number of its own.
ModelConfig small_config() {
  ModelConfig c;
  c.hidden_dim = 10;
  c.vocab_size = 100;
  c.layers = {{Mixer::kGatedDelta, Ffn::kMixtureOfExperts},
              {Mixer::kAttention, Ffn::kMixtureOfExperts},
              {Mixer::kShortConv, Ffn::kDense},
              {Mixer::kShortConv, Ffn::kDense}};
  c.attention = {.num_heads = 3, .num_kv_heads = 1, .head_dim = 4, .rotary_dim = 2, .has_gate = true};
  c.gated_delta = {.num_k_heads = 1, .num_v_heads = 2, .k_dim = 3, .v_dim = 5, .conv_kernel = 4};
  c.short_conv = {.channels = 6, .conv_kernel = 3};
  c.dense = {.intermediate_dim = 11};
  c.moe = {.num_experts = 6, .top_k = 2, .intermediate_dim = 7, .shared_intermediate_dim = 9};
  c.mtp = true;
  return c;
}

const OperatorFacts& facts_of(Zone zone) {
  static const std::vector<OperatorFacts> operators = describe_operators(
      small_config(), parse_quantization("mixers=w8a8,lm_head=w4a8,experts=w4a8"), DType::kBF16, DType::kBF16);
  const OperatorFacts* facts = find_operator(operators, zone);
  if (facts == nullptr) throw std::logic_error(zone_info(zone).name);
  return *facts;
}

void expect_cost(Zone zone, uint32_t a, uint32_t b, int64_t sequences, double flop, double bytes) {
  const SpanCounts counts = facts_of(zone).counts(a, b, sequences);
  EXPECT_DOUBLE_EQ(facts_of(zone).flop.of(counts), flop) << zone_info(zone).name;
  EXPECT_DOUBLE_EQ(facts_of(zone).bytes.of(counts), bytes) << zone_info(zone).name;
}

TEST(OperatorsTest, Projections) {
  expect_cost(Zone::kOProj, 3, 0, 1, 2 * 3 * 12 * 10, 12 * 10 * 1 + 3 * (12 + 10) * 2);
  expect_cost(Zone::kQProj, 1, 0, 1, 2 * 10 * 24, 10 * 24 * 1 + (10 + 24) * 2);  // q and its gate
  expect_cost(Zone::kOutProj, 2, 0, 1, 2 * 2 * 10 * 10, 10 * 10 * 1 + 2 * (10 + 10) * 2);
  expect_cost(Zone::kLmHead, 1, 0, 1, 2 * 10 * 100, 10 * 100 * kW4 + 110 * 2);
  expect_cost(Zone::kConvInProj, 2, 0, 1, 2 * 2 * 10 * 18, 10 * 18 * 1 + 2 * (10 + 18) * 2);
  expect_cost(Zone::kMtpFc, 3, 0, 1, 2 * 3 * 20 * 10, 20 * 10 * 2 + 3 * (20 + 10) * 2);
}

TEST(OperatorsTest, NetworksLeaveOneOutputAPair) {
  expect_cost(Zone::kDenseGateUp, 3, 0, 1, 3 * 4 * 10 * 11, 2 * 10 * 11 * 2 + 3 * (10 + 11) * 2);
  expect_cost(Zone::kDenseDown, 3, 0, 1, 3 * 2 * 10 * 11, 10 * 11 * 2 + 3 * (10 + 11) * 2);
  expect_cost(Zone::kSharedGateUp, 3, 0, 1, 3 * 4 * 10 * 9, 2 * 10 * 9 * 2 + 3 * (10 + 9) * 2);
}

TEST(OperatorsTest, GroupedMatmulReadsActiveExpertsOnly) {
  // Gate, up and down together: 6 T H I operations and 3 H I weights for each active expert.
  expect_cost(Zone::kGroupedGateUp, 5, 4, 1, 4 * 5 * 10 * 7, 4 * 2 * 10 * 7 * kW4 + 5 * (10 + 7) * 2);
  expect_cost(Zone::kGroupedDown, 5, 4, 1, 2 * 5 * 10 * 7, 4 * 10 * 7 * kW4 + 5 * (7 + 10) * 2);
}

TEST(OperatorsTest, AttentionReadsItsCacheOncePerSequence) {
  // 2000 keys seen by two rows: of two sequences each reads its own 1000, of one sequence both read the same.
  expect_cost(Zone::kAttention, 2, 2000, 2, 4 * 12 * 2000.0, 2 * (2000.0 * 2 * 4 + 2 * 2 * 12));
  expect_cost(Zone::kAttention, 2, 2000, 1, 4 * 12 * 2000.0, 2 * (1000.0 * 2 * 4 + 2 * 2 * 12));
}

TEST(OperatorsTest, StatesMoveOncePerSequence) {
  const double state = 2 * 3 * 5;
  expect_cost(Zone::kRecurrentDeltaRule, 4, 4, 4, 7 * 4 * state, 2 * 4 * 4 * state + 4 * ((16 + 10) * 2 + 2 * 4 * 2));
  expect_cost(Zone::kChunkDeltaRule, 4, 1, 1, 7 * 4 * state, 2 * 4 * state + 4 * ((16 + 10) * 2 + 2 * 4 * 2));
  expect_cost(Zone::kShortConv, 4, 2, 2, 2 * 4 * 6 * 3, 2 * 6 * (2 * 4 + 3 + 2 * 2 * 2));
}

TEST(OperatorsTest, NormsOfHeadsHaveAHeadPerRow) {
  expect_cost(Zone::kQkNorm, 6, 0, 1, 4 * 6 * 4, 2 * 6 * 4 * 2);
  expect_cost(Zone::kGatedNorm, 6, 0, 1, 8 * 6 * 5, 3 * 6 * 5 * 2);
  expect_cost(Zone::kSigmoidGate, 6, 0, 1, 4 * 6 * 4, 3 * 6 * 4 * 2);
}

TEST(OperatorsTest, KnowTheirLayersAndRows) {
  EXPECT_EQ(facts_of(Zone::kInputNorm).num_layers, 4);
  EXPECT_EQ(facts_of(Zone::kQProj).num_layers, 1);
  EXPECT_EQ(facts_of(Zone::kShortConv).num_layers, 2);
  EXPECT_EQ(facts_of(Zone::kRouter).num_layers, 2);
  EXPECT_EQ(facts_of(Zone::kGroupedDown).rows_per_token, 2);
  EXPECT_EQ(facts_of(Zone::kLmHead).num_layers, 1);
  EXPECT_EQ(facts_of(Zone::kQProj).factors, Factors::kCodes);
  EXPECT_EQ(facts_of(Zone::kRouter).factors, Factors::kValues);
}

// One key head of 4: a row of keys or values is 4 codes and an exponent.
TEST(OperatorsTest, KeysAndValuesInCodesAreReadAsCodes) {
  const std::vector<OperatorFacts> operators = describe_operators(small_config(), {}, DType::kBF16, DType::kI8);
  const OperatorFacts *attention = find_operator(operators, Zone::kAttention),
                      *append = find_operator(operators, Zone::kKvAppend);
  EXPECT_EQ(attention->bytes.per_key, 2 * (4 + 1));
  EXPECT_EQ(attention->inputs[0].type, "DT_BF16");
  EXPECT_EQ(attention->inputs[1].type, "INT8");
  EXPECT_EQ(append->bytes.per_row, 2 * (4 * 2 + 4 + 1));
  EXPECT_EQ(append->inputs[0].type, "DT_BF16");
  EXPECT_EQ(append->outputs[0].type, "INT8");
}

TEST(OperatorsTest, SlicesAreGroupedProductsWithoutARouter) {
  ModelConfig config = small_config();
  for (LayerPlan& layer : config.layers) layer.ffn = Ffn::kMixtureOfExperts;
  config.moe = {.num_experts = 3, .top_k = 3, .intermediate_dim = 7, .is_sliced = true};
  const std::vector<OperatorFacts> operators = describe_operators(config, {}, DType::kBF16, DType::kBF16);
  for (const Zone zone : {Zone::kRouter, Zone::kGatingTopK, Zone::kDenseDown, Zone::kSharedDown})
    EXPECT_EQ(find_operator(operators, zone), nullptr) << zone_info(zone).name;
  const OperatorFacts* down = find_operator(operators, Zone::kGroupedDown);
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->rows_per_token, 3);
  EXPECT_EQ(down->num_layers, 4);
}

TEST(OperatorsTest, WhatIsNoOperatorHasNone) {
  for (const Zone zone : {Zone::kSchedule, Zone::kExperts, Zone::kWaitCombine}) EXPECT_THROW(facts_of(zone), std::logic_error);
  expect_cost(Zone::kDispatch, 9, 9, 1, 0, 0);  // a token goes once for all of its rows: its cost is not told
}

std::string text_of(const std::vector<TensorFacts>& tensors, const SpanCounts& counts) {
  std::string text;
  for (const TensorFacts& tensor : tensors) {
    text += (text.empty() ? "" : "; ") + tensor.type;
    for (const TensorDim& dim : tensor.dims) text += " " + std::to_string(dim.of(counts));
  }
  return text;
}

TEST(OperatorsTest, ShapesHoldWeightsCachesAndStates) {
  const auto inputs = [](Zone zone, uint32_t a, uint32_t b, int64_t sequences = 1) {
    return text_of(facts_of(zone).inputs, facts_of(zone).counts(a, b, sequences));
  };
  const auto outputs = [](Zone zone, uint32_t a, uint32_t b) {
    return text_of(facts_of(zone).outputs, facts_of(zone).counts(a, b, 1));
  };
  EXPECT_EQ(inputs(Zone::kQProj, 5, 0), "DT_BF16 5 10; INT8 10 24");  // with its gate
  EXPECT_EQ(inputs(Zone::kRouter, 5, 0), "DT_BF16 5 10; DT_BF16 10 6");
  EXPECT_EQ(inputs(Zone::kGroupedGateUp, 9, 3), "DT_BF16 9 10; INT4 3 10 14; INT32 3");
  EXPECT_EQ(outputs(Zone::kGroupedGateUp, 9, 3), "DT_BF16 9 7");
  EXPECT_EQ(inputs(Zone::kSharedGateUp, 9, 0), "DT_BF16 9 10; DT_BF16 10 18");
  EXPECT_EQ(outputs(Zone::kSharedGateUp, 9, 0), "DT_BF16 9 9");
  EXPECT_EQ(inputs(Zone::kAttention, 4, 2000, 4), "DT_BF16 4 3 4; DT_BF16 2000 1 4; DT_BF16 2000 1 4");
  EXPECT_EQ(inputs(Zone::kAttention, 100, 5000, 1), "DT_BF16 100 3 4; DT_BF16 50 1 4; DT_BF16 50 1 4");
  EXPECT_EQ(inputs(Zone::kRecurrentDeltaRule, 3, 3),
            "DT_BF16 3 1 3; DT_BF16 3 1 3; DT_BF16 3 2 5; FLOAT 3 2; FLOAT 3 2; FLOAT 3 2 5 3");
  EXPECT_EQ(inputs(Zone::kCausalConv1d, 3, 2), "DT_BF16 3 16; DT_BF16 16 4; DT_BF16 2 16 3");
  EXPECT_EQ(inputs(Zone::kGatedNorm, 18, 0), "DT_BF16 18 5; DT_BF16 18 5");
}

/// What computes has shapes; messages and what a record does not tell have none.
// Of the decoder: the vision tower runs outside its steps and is not among what describe_operators() describes.
TEST(OperatorsTest, EveryOperatorIsDescribed) {
  for (int z = 0; z < kNumZones; ++z) {
    const Zone zone = static_cast<Zone>(z);
    if (zone_info(zone).kind != ZoneKind::kCompute || zone == Zone::kRopeTable) continue;
    if (zone == Zone::kDeviceCopy || zone == Zone::kDeviceOther) continue;
    if (std::string_view(zone_info(zone).name).ends_with(".vision")) continue;
    EXPECT_FALSE(facts_of(zone).inputs.empty()) << zone_info(zone).name;
    EXPECT_FALSE(facts_of(zone).outputs.empty()) << zone_info(zone).name;
  }
}

}  // namespace
}  // namespace ferry
