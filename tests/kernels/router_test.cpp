#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "tests/support/compare.h"
#include "tests/support/op_test.h"

namespace ferry::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Routing {
  std::vector<int32_t> topk_idx;
  std::vector<float> topk_weights;
};

Routing route(const OpTable& ops, Stream& stream, const TestMatrix& logits, int64_t top_k) {
  const auto size = static_cast<std::size_t>(logits.view().rows * top_k);
  Routing routing{std::vector<int32_t>(size, -7), std::vector<float>(size, kNan)};
  ops.router_topk(stream, {.logits = logits.view(),
                           .top_k = top_k,
                           .topk_idx = routing.topk_idx.data(),
                           .topk_weights = routing.topk_weights.data()});
  return routing;
}

class RouterTest : public OpTest {
 protected:
  TestMatrix logits_row(const std::vector<float>& values) const {
    TestMatrix logits(dtype(), 1, static_cast<int64_t>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) logits.set(0, static_cast<int64_t>(i), values[i]);
    return logits;
  }
  Tolerance weight_tolerance() const { return is_f32() ? Tolerance{0.0, 2e-6} : Tolerance{0.0, 0.0079, 0.02}; }
};
INSTANTIATE_TEST_SUITE_P(Tables, RouterTest, testing::ValuesIn(op_cases()), op_case_name);

struct RouterShape {
  int64_t num_tokens, num_experts, top_k;
};

TEST_P(RouterTest, LikeRef) {
  for (const RouterShape& s :
       {RouterShape{1, 1, 1}, {3, 8, 8}, {5, 13, 4}, {2, 16, 1}, {40, 67, 6}, {129, 512, 10}, {2, 4096, 30}}) {
    const TestMatrix logits = TestMatrix(dtype(), s.num_tokens, s.num_experts, 3).fill_random(1, 2.0f);
    const Routing actual = route(table(), stream_, logits, s.top_k);
    const Routing expected = route(ref::kOpTable, serial_stream_, logits, s.top_k);
    EXPECT_EQ(actual.topk_idx, expected.topk_idx) << s.num_experts << " experts";
    EXPECT_TRUE(all_close(actual.topk_weights, expected.topk_weights, weight_tolerance())) << s.num_experts << " experts";
    const Routing serial = route(table(), serial_stream_, logits, s.top_k);
    EXPECT_EQ(actual.topk_idx, serial.topk_idx);
    EXPECT_TRUE(all_close(actual.topk_weights, serial.topk_weights, kExact));
  }
}

TEST_P(RouterTest, IsTheFormula) {
  const int64_t num_experts = 45, top_k = 5;
  const TestMatrix logits = TestMatrix(dtype(), 6, num_experts).fill_random(2, 2.0f);
  const Routing routing = route(table(), stream_, logits, top_k);
  for (int64_t t = 0; t < 6; ++t) {
    // Renormalised softmax: the sum over all experts cancels, the sum over the chosen ones stays.
    std::vector<std::pair<double, int32_t>> order;
    for (int32_t e = 0; e < num_experts; ++e) order.emplace_back(-static_cast<double>(logits.get(t, e)), e);
    std::sort(order.begin(), order.end());
    double sum = 0.0;
    for (std::size_t k = 0; k < top_k; ++k) sum += std::exp(-order[k].first);
    for (std::size_t k = 0; k < top_k; ++k) {
      const std::size_t slot = static_cast<std::size_t>(t * top_k) + k;
      EXPECT_EQ(routing.topk_idx[slot], order[k].second);
      const double expected = std::exp(-order[k].first) / sum;
      EXPECT_NEAR(routing.topk_weights[slot], expected, expected * (is_f32() ? 1e-6 : 0.00393));
      EXPECT_EQ(routing.topk_weights[slot],
                is_f32() ? routing.topk_weights[slot] : round_to<bfloat16>(routing.topk_weights[slot]));
    }
  }
}

TEST_P(RouterTest, TiesGoToTheLowerId) {
  std::vector<float> values(53, -1.0f);
  for (const std::size_t e : {3U, 17U, 19U, 35U, 52U}) values[e] = 2.0f;
  const Routing some = route(table(), stream_, logits_row(values), 4);
  EXPECT_EQ(some.topk_idx, (std::vector<int32_t>{3, 17, 19, 35}));
  for (const float w : some.topk_weights) EXPECT_EQ(w, 0.25f);

  std::vector<int32_t> all_ids(53);
  std::iota(all_ids.begin(), all_ids.end(), 0);
  EXPECT_EQ(route(table(), stream_, logits_row(std::vector<float>(53, 0.5f)), 53).topk_idx, all_ids);
}

TEST_P(RouterTest, NanCountsAsMinusInfinity) {
  std::vector<float> values(37, kNan);
  values[20] = 1.0f;
  values[36] = 3.0f;
  const Routing routing = route(table(), stream_, logits_row(values), 4);
  EXPECT_EQ(routing.topk_idx, (std::vector<int32_t>{36, 20, 0, 1}));
  EXPECT_GT(routing.topk_weights[0], routing.topk_weights[1]);
  EXPECT_EQ(routing.topk_weights[2], 0.0f);
}

TEST_P(RouterTest, HopelessRowsStillGiveValidDistinctIds) {
  std::vector<float> mixed(33, kNan);
  mixed[5] = kInfinity;
  mixed[32] = -kInfinity;
  mixed[7] = 0.0f;
  for (const std::vector<float>& values :
       {std::vector<float>(33, kNan), std::vector<float>(33, -kInfinity), std::vector<float>(33, kInfinity), mixed}) {
    const Routing routing = route(table(), stream_, logits_row(values), 33);
    const std::set<int32_t> ids(routing.topk_idx.begin(), routing.topk_idx.end());
    EXPECT_EQ(ids.size(), 33U);
    EXPECT_GE(*ids.begin(), 0);
    EXPECT_LT(*ids.rbegin(), 33);
    for (const float w : routing.topk_weights) EXPECT_TRUE(w >= 0.0f && w <= 1.0f) << w;
  }
}

// Probabilities that underflow are ties at zero.
TEST_P(RouterTest, UnderflowingProbabilitiesTie) {
  std::vector<float> values(21, -400.0f);
  values[9] = 0.0f;
  values[15] = -300.0f;
  const Routing routing = route(table(), stream_, logits_row(values), 3);
  EXPECT_EQ(routing.topk_idx, (std::vector<int32_t>{9, 0, 1}));
  EXPECT_EQ(routing.topk_weights[0], 1.0f);
}

TEST_P(RouterTest, DeltaGatesLikeRef) {
  for (const auto& [rows, heads] : {std::pair<int64_t, int64_t>{1, 1}, {3, 17}, {130, 64}}) {
    const TestMatrix a = TestMatrix(dtype(), rows, heads, 3).fill_random(3, 8.0f);
    const TestMatrix b = TestMatrix(dtype(), rows, heads, 1).fill_random(4, 3.0f);
    const std::vector<float> a_log = random_floats(static_cast<std::size_t>(heads), 5);
    const std::vector<float> dt_bias = random_floats(static_cast<std::size_t>(heads), 6);
    const auto size = static_cast<std::size_t>(rows * heads);
    std::vector<float> decay(size), beta(size), expected_decay(size), expected_beta(size);
    DeltaGatesArgs args{.a = a.view(),
                        .b = b.view(),
                        .a_log = a_log.data(),
                        .dt_bias = dt_bias.data(),
                        .decay = decay.data(),
                        .beta = beta.data()};
    table().delta_gates(stream_, args);
    args.decay = expected_decay.data();
    args.beta = expected_beta.data();
    ref::kOpTable.delta_gates(serial_stream_, args);
    EXPECT_TRUE(all_close(decay, expected_decay, {0.0, 2e-6}));
    EXPECT_TRUE(all_close(beta, expected_beta, weight_tolerance()));
  }
}

TEST_P(RouterTest, DeltaGatesAreTheFormula) {
  const std::vector<float> inputs = {-90.0f, -20.0f, -1.0f, 0.0f, 0.5f, 19.5f, 20.5f, 100.0f};
  const auto heads = static_cast<int64_t>(inputs.size());
  const TestMatrix a = logits_row(inputs);
  const std::vector<float> a_log = random_floats(inputs.size(), 7), dt_bias = random_floats(inputs.size(), 8);
  std::vector<float> decay(inputs.size()), beta(inputs.size());
  table().delta_gates(stream_, {.a = a.view(),
                                .b = a.view(),
                                .a_log = a_log.data(),
                                .dt_bias = dt_bias.data(),
                                .decay = decay.data(),
                                .beta = beta.data()});
  for (int64_t h = 0; h < heads; ++h) {
    const auto i = static_cast<std::size_t>(h);
    const double x = static_cast<double>(a.get(0, h)) + dt_bias[i];
    const double softplus = std::log(1.0 + std::exp(x));
    const double expected = -std::exp(static_cast<double>(a_log[i])) * softplus;
    EXPECT_NEAR(decay[i], expected, std::abs(expected) * 5e-6 + 1e-12);
    EXPECT_LE(decay[i], 0.0f);
    const double sigmoid = 1.0 / (1.0 + std::exp(-static_cast<double>(a.get(0, h))));
    EXPECT_NEAR(beta[i], sigmoid, sigmoid * (is_f32() ? 1e-6 : 0.00393) + 2e-38);
  }
}

}  // namespace
}  // namespace ferry::test
