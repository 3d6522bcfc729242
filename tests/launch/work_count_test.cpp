#include "launch/work_count.h"

#include <gtest/gtest.h>

#include "runtime/model/operators.h"

namespace ferry {
namespace {

/// One layer of each kind; every dimension a number of its own.
ModelConfig small_config() {
  ModelConfig c;
  c.vocab_size = 100;
  c.hidden_dim = 10;
  c.gated_delta = {.num_k_heads = 1, .num_v_heads = 2, .k_dim = 3, .v_dim = 5, .conv_kernel = 4};
  c.layers = {{Mixer::kGatedDelta, Ffn::kMixtureOfExperts}, {Mixer::kAttention, Ffn::kMixtureOfExperts}};
  c.attention.num_heads = 2;
  c.attention.num_kv_heads = 1;
  c.attention.head_dim = 4;
  c.attention.has_gate = true;
  c.moe = {.num_experts = 8, .top_k = 2, .intermediate_dim = 5, .shared_intermediate_dim = 3};
  return c;
}

WorkCount count_of(WorkCount::Experts experts = WorkCount::Experts::kHere, const Quantization& quantization = {}) {
  return {describe_operators(small_config(), quantization, DType::kBF16, DType::kBF16), experts};
}

TEST(WorkCount, AStepReadsTheExpertsThatItsRowsWentTo) {
  const WorkCount count = count_of();
  const Work one = count.decode_step(4, 7, 5), more = count.decode_step(4, 7, 6);
  EXPECT_DOUBLE_EQ(more.bytes - one.bytes, 3 * 10 * 5 * 2);
  EXPECT_DOUBLE_EQ(more.flops, one.flops);
}

TEST(WorkCount, ExpertsOnWorkersAreNotTheCoordinatorsWork) {
  const WorkCount alone = count_of();
  const WorkCount with_workers = count_of(WorkCount::Experts::kOnWorkers);
  const Work all = alone.decode_step(3, 7, 5), own = with_workers.decode_step(3, 7, 5);
  EXPECT_DOUBLE_EQ(all.bytes - own.bytes, 5 * 3 * 10 * 5 * 2);
  EXPECT_DOUBLE_EQ(all.flops - own.flops, 3 * 2 * (2 * 2) * 3 * 10 * 5);  // rows, layers, top 2 multiply-adds
}

TEST(WorkCount, QuantisedFactorsAreCountedApart) {
  const Quantization experts = parse_quantization("experts=w8a8");
  const Work plain = count_of().decode_step(1, 0, 4);
  const Work codes = count_of(WorkCount::Experts::kHere, experts).decode_step(1, 0, 4);
  EXPECT_EQ(plain.code_flops, 0);
  EXPECT_DOUBLE_EQ(codes.code_flops, 2 * (2 * 2) * 3 * 10 * 5);
  EXPECT_DOUBLE_EQ(codes.all_flops(), plain.all_flops());
  EXPECT_LT(codes.bytes, plain.bytes);
}

TEST(WorkCount, AttentionReadsItsCache) {
  const WorkCount count = count_of();
  const Work near = count.decode_step(2, 10, 4), far = count.decode_step(2, 11, 4);
  EXPECT_DOUBLE_EQ(far.bytes - near.bytes, 2 * 2 * 4 * 2);  // sequences, key and value, head_dim, bytes
  EXPECT_DOUBLE_EQ(far.flops - near.flops, 2 * 4 * 2 * 4);  // sequences, 4 operations an element of the queries
}

TEST(WorkCount, APromptBehindAContextReadsItsKeysForEachPieceAndMultipliesThemForEachRow) {
  const WorkCount count = count_of();
  const double key_and_value = 2 * 4 * 2, of_a_row_and_key = 4 * 2 * 4;  // bytes of a token; operations
  const Work plain = count.prompt(0, 64, 32, 10), deep = count.prompt(1000, 64, 32, 10);
  EXPECT_DOUBLE_EQ(deep.bytes - plain.bytes, 2 * 1000 * key_and_value) << "two pieces";
  EXPECT_DOUBLE_EQ(deep.flops - plain.flops, 64 * 1000 * of_a_row_and_key);
  const Work one = count.prompt(0, 64, 64, 10);
  const Work longer = count.prompt(1, 64, 64, 10);
  EXPECT_DOUBLE_EQ(longer.flops - one.flops, 64 * of_a_row_and_key);
  EXPECT_DOUBLE_EQ(longer.bytes - one.bytes, key_and_value);
}

TEST(WorkCount, APromptInPiecesReadsItsWeightsForEach) {
  const WorkCount count = count_of();
  const Work whole = count.prompt(0, 64, 64, 10), halves = count.prompt(0, 64, 32, 10);
  EXPECT_GT(halves.bytes, whole.bytes);
  EXPECT_DOUBLE_EQ(halves.flops, whole.flops);
}

}  // namespace
}  // namespace ferry
