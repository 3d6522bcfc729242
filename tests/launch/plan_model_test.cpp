#include "launch/plan_model.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace ferry {
namespace {

/// One layer of each kind; every dimension a number of its own.
ModelConfig planned_config() {
  ModelConfig c;
  c.class_name = "C";
  c.vocab_size = 100;
  c.hidden_dim = 64;
  c.gated_delta = {.num_k_heads = 1, .num_v_heads = 2, .k_dim = 3, .v_dim = 5, .conv_kernel = 4};
  c.layers = {{Mixer::kGatedDelta, Ffn::kMixtureOfExperts}, {Mixer::kAttention, Ffn::kMixtureOfExperts}};
  c.attention.num_heads = 6;
  c.attention.num_kv_heads = 2;
  c.attention.head_dim = 40;
  c.attention.has_gate = true;
  c.moe = {.num_experts = 8, .top_k = 2, .intermediate_dim = 5, .shared_intermediate_dim = 3};
  return c;
}

// What of the roofs is counted with is `reads` bytes and `multiplies` operations a second.
RankCosts costs_of(const PlanRun& run, double reads, double multiplies) {
  PlanHost host;
  host.read_bytes_per_s = reads / kPlanReadShare;
  host.flops_per_s = host.code_flops_per_s = multiplies / kPlanMultiplyShare;
  const ModelConfig config = planned_config();
  cost_by_roofs(host, config, run, plan_model(config, run));
  return host.alone;
}

TEST(PlanModel, KeysAndValuesTakeTheBytesOfTheirDtype) {
  // Keys and values of two heads of one layer: 40 columns of 2 bytes, or of 1 and an exponent for each 32.
  EXPECT_DOUBLE_EQ(plan_model(planned_config(), {}).bytes_per_token, 2 * 2 * 80);
  EXPECT_DOUBLE_EQ(plan_model(planned_config(), {.kv_dtype = DType::kI8}).bytes_per_token, 2 * 2 * 42);
  EXPECT_DOUBLE_EQ(plan_model(planned_config(), {.dtype = DType::kF32, .kv_dtype = DType::kF32}).bytes_per_token, 2 * 2 * 160);
  // Nothing else changes but that costs are not those of another cache.
  const PlanModel values = plan_model(planned_config(), {}), codes = plan_model(planned_config(), {.kv_dtype = DType::kI8});
  EXPECT_EQ(values.coordinator_bytes, codes.coordinator_bytes);
  EXPECT_EQ(values.bytes_per_sequence, codes.bytes_per_sequence);
  EXPECT_EQ(codes.shape, values.shape + " keys and values int8");
}

TEST(PlanModel, AScreenIsWeightsOfTheCoordinator) {
  const PlanModel plain = plan_model(planned_config(), {}), screened = plan_model(planned_config(), {.screens_lm_head = true});
  // 100 columns are four panels of 32, of which each column has 64 codes, a scale and two bounds.
  EXPECT_DOUBLE_EQ(screened.coordinator_bytes - plain.coordinator_bytes, 4 * 32 * (64 + 4 + 2 * 4));
  EXPECT_EQ(screened.expert_bytes, plain.expert_bytes);
  EXPECT_EQ(screened.shape, plain.shape + " lm_head screened");
  for (const PlanRun& run : {PlanRun{.dtype = DType::kF32, .kv_dtype = DType::kF32, .screens_lm_head = true},
                             PlanRun{.quantization = parse_quantization("lm_head=w8a8"), .screens_lm_head = true}}) {
    test::expect_error([&] { plan_model(planned_config(), run); }, ErrorCode::kInvalidArgument, {"--lm-head-screen", "bf16"});
  }
}

TEST(PlanModel, ATokenThatIsLookedBackOnCostsItsBytesOrItsProducts) {
  // Decoding reads the keys and values of each row's own tokens, and multiplies each with six queries of 40 columns.
  constexpr double kBytes = 320, kCodeBytes = 168, kOperations = 4 * 6 * 40;
  const RankCosts read = costs_of({}, 1, 1e9), codes = costs_of({.kv_dtype = DType::kI8}, 1, 1e9);
  EXPECT_DOUBLE_EQ(read.of_keys(true, 1, 1), kBytes);
  EXPECT_DOUBLE_EQ(read.of_keys(true, 3, 10), 30 * kBytes);
  EXPECT_DOUBLE_EQ(read.of_keys(true, 64, 7), 64 * 7 * kBytes);
  EXPECT_DOUBLE_EQ(codes.of_keys(true, 64, 7), 64 * 7 * kCodeBytes);
  EXPECT_DOUBLE_EQ(costs_of({}, 1e9, 1).of_keys(true, 4, 5), 4 * 5 * kOperations);
  // A piece of a prompt, here one of 512 tokens, reads them once.
  EXPECT_DOUBLE_EQ(costs_of({}, 1e9, 1).of_keys(false, 512, 100), 512.0 * 100 * kOperations);
  EXPECT_DOUBLE_EQ(read.of_keys(false, 512, 100), 100 * kBytes);
}

TEST(PlanModel, AScreenReadsHalfOfLmHead) {
  const RankCosts plain = costs_of({}, 1, 1e9), screened = costs_of({.screens_lm_head = true}, 1, 1e9);
  // 100 columns of 64 elements of 2 bytes, or of one.
  EXPECT_DOUBLE_EQ(plain.own_decode.at(1) - screened.own_decode.at(1), 6400);
  EXPECT_DOUBLE_EQ(plain.of_keys(true, 3, 10), screened.of_keys(true, 3, 10));
}

}  // namespace
}  // namespace ferry
