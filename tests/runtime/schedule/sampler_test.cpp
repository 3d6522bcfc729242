#include "runtime/schedule/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "tests/support/draws.h"

namespace ferry {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams params_of(float temperature, int32_t top_k = 0, float top_p = 1.0F, uint64_t seed = 7) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.seed = seed;
  return params;
}

TokenId sample_once(const std::vector<float>& logits, const SamplingParams& params, int64_t token_idx = 0) {
  SamplerScratch scratch(std::ssize(logits));
  return sample(logits, static_cast<int32_t>(logits.size()), params, token_idx, scratch);
}

/// The exact distribution by the book: scale, sort everything, cut, cut, renormalise.
std::vector<double> expected_distribution(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const auto share = [&](std::size_t id) {
    return std::exp((logits[id] - static_cast<double>(logits[order[0]])) / params.temperature);
  };
  std::erase_if(order, [&, first = order[0]](std::size_t id) { return id != first && share(id) < params.min_p; });
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < order.size())
    order.resize(static_cast<std::size_t>(params.top_k));
  const double max = logits[order[0]];
  const auto weight = [&](std::size_t id) { return std::exp((logits[id] - max) / params.temperature); };
  double total = 0.0;
  for (const std::size_t id : order) total += weight(id);
  std::vector<double> probabilities(logits.size(), 0.0);
  double before = 0.0;
  double kept = 0.0;
  for (const std::size_t id : order) {
    if (params.top_p < 1.0F && before >= params.top_p * total) break;
    before += weight(id);
    probabilities[id] = weight(id);
    kept += weight(id);
  }
  for (double& p : probabilities) p /= kept;
  return probabilities;
}

void expect_distribution(const std::vector<float>& logits, const SamplingParams& params) {
  constexpr int kNumDraws = test::draws(40'000, 20'000);
  const std::vector<double> expected = expected_distribution(logits, params);
  std::vector<int> counts(logits.size(), 0);
  SamplerScratch scratch(std::ssize(logits));
  for (int i = 0; i < kNumDraws; ++i) {
    const TokenId id = sample(logits, static_cast<int32_t>(logits.size()), params, i, scratch);
    ASSERT_GE(id, 0);
    ++counts[static_cast<std::size_t>(id)];
  }
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double mean = kNumDraws * expected[id];
    if (expected[id] == 0.0) {
      EXPECT_EQ(counts[id], 0) << "id " << id;
    } else {
      EXPECT_NEAR(counts[id], mean, 5.0 * std::sqrt(mean * (1.0 - expected[id])) + 1e-9) << "id " << id;
    }
  }
}

const std::vector<float> kLogits = {0.3F, -1.2F, 2.0F, 0.3F, 1.1F, -4.0F, 0.0F, 1.1F, 0.7F, -0.5F, 0.3F};

TEST(Sampler, GreedyTakesTheHighestAndTheLowestIdOnTies) {
  EXPECT_EQ(sample_once({1.0F, 3.0F, 3.0F, -2.0F}, params_of(0.0F)), 1);
  EXPECT_EQ(sample_once({-5.0F}, params_of(0.0F)), 0);
  EXPECT_EQ(sample_once({-0.0F, 0.0F}, params_of(0.0F)), 0);
  EXPECT_EQ(sample_once({1.0F, kInf, kInf}, params_of(0.0F)), 1);
}

TEST(Sampler, NanAndMaskedTokensNeverWin) {
  for (const float temperature : {0.0F, 1.0F}) {
    for (const int32_t top_k : {0, 1, 2}) {
      for (const float top_p : {1.0F, 0.5F}) {
        const SamplingParams params = params_of(temperature, top_k, top_p);
        for (int i = 0; i < 50; ++i) {
          EXPECT_EQ(sample_once({kNan, -kInf, -3.0e38F, kNan}, params, i), 2);
          EXPECT_EQ(sample_once({kNan, kNan, kNan}, params, i), kNoToken);
          EXPECT_EQ(sample_once({-kInf, kNan}, params, i), kNoToken);
          EXPECT_EQ(sample_once({kInf, 3.0F, kNan}, params, i), 0);
        }
      }
    }
  }
}

TEST(Sampler, InfiniteLogitsShareTheProbability) {
  std::set<TokenId> seen;
  for (int i = 0; i < 100; ++i) seen.insert(sample_once({0.0F, kInf, 5.0F, kInf, -kInf}, params_of(1.0F), i));
  EXPECT_EQ(seen, (std::set<TokenId>{1, 3}));
}

TEST(Sampler, PaddingIsNeverChosen) {
  const std::vector<float> logits = {0.1F, 0.2F, 0.3F, 90.0F, 91.0F};
  SamplerScratch scratch(5);
  EXPECT_EQ(sample(logits, 3, params_of(0.0F), 0, scratch), 2);
  for (const auto& params : {params_of(1.0F), params_of(1.0F, 2), params_of(1.0F, 0, 0.9F), params_of(1.0F, 5, 0.9F)}) {
    for (int i = 0; i < 300; ++i) EXPECT_LT(sample(logits, 3, params, i, scratch), 3);
  }
}

TEST(Sampler, DrawsFromTheSoftmaxAtEveryTemperature) {
  for (const float temperature : {0.35F, 1.0F, 2.5F}) expect_distribution(kLogits, params_of(temperature));
}

TEST(Sampler, DrawsFromTheTopK) {
  // k = 5 and 6 cut through the three equal logits 0.3 at ids 0, 3 and 10.
  for (const int32_t top_k : {1, 2, 3, 5, 6, 10, 11, 12}) expect_distribution(kLogits, params_of(0.9F, top_k));
}

TEST(Sampler, DrawsFromTheNucleus) {
  for (const float top_p : {1e-6F, 0.2F, 0.5F, 0.75F, 0.9F, 0.999F}) expect_distribution(kLogits, params_of(1.3F, 0, top_p));
}

TEST(Sampler, RenormalisesBetweenTopKAndTopP) {
  for (const int32_t top_k : {2, 3, 5, 9}) {
    for (const float top_p : {0.4F, 0.7F, 0.95F}) expect_distribution(kLogits, params_of(0.8F, top_k, top_p));
  }
  // Probabilities 1/2, 1/4, 1/8, 1/8: alone top_p = 0.7 keeps two tokens; of the top two, 2/3 and 1/3, also both; 0.6 keeps
  // one.
  const std::vector<float> halves = {std::log(4.0F), std::log(2.0F), 0.0F, 0.0F};
  std::set<TokenId> without_k;
  std::set<TokenId> with_k;
  for (int i = 0; i < 200; ++i) {
    without_k.insert(sample_once(halves, params_of(1.0F, 0, 0.6F), i));
    with_k.insert(sample_once(halves, params_of(1.0F, 2, 0.6F), i));
  }
  EXPECT_EQ(without_k, (std::set<TokenId>{0, 1}));
  EXPECT_EQ(with_k, (std::set<TokenId>{0}));
}

TEST(Sampler, DrawsFromWhatHasAShareOfTheBest) {
  for (const float min_p : {1e-6F, 0.05F, 0.2F, 0.5F, 0.9F, 1.0F}) {
    for (const int32_t top_k : {0, 4}) {
      for (const float top_p : {0.6F, 1.0F}) {
        SamplingParams params = params_of(0.9F, top_k, top_p);
        params.min_p = min_p;
        expect_distribution(kLogits, params);
      }
    }
  }
}

TEST(Sampler, MinPWithExtremeTemperaturesAndLogits) {
  SamplingParams params = params_of(std::numeric_limits<float>::max());
  params.min_p = 0.5F;
  std::set<TokenId> seen;
  for (int i = 0; i < 300; ++i) seen.insert(sample_once({1.0F, 2.0F, 3.0F}, params, i));
  EXPECT_EQ(seen.size(), 3U) << "all have nearly the same probability";
  params = params_of(1.0F, 2);
  params.min_p = 1e-30F;
  for (int i = 0; i < 50; ++i) EXPECT_EQ(sample_once({3.0F, kInf, -kInf, kNan}, params, i), 1);
}

TEST(Sampler, NucleusEndsExactlyAtTheMass) {
  // Eight equal tokens: a quarter is exactly two of them, a little more is three.
  const std::vector<float> equal(8, 1.5F);
  std::set<TokenId> quarter;
  std::set<TokenId> more;
  for (int i = 0; i < 400; ++i) {
    quarter.insert(sample_once(equal, params_of(1.0F, 0, 0.25F), i));
    more.insert(sample_once(equal, params_of(1.0F, 0, 0.2501F), i));
  }
  EXPECT_EQ(quarter, (std::set<TokenId>{0, 1}));
  EXPECT_EQ(more, (std::set<TokenId>{0, 1, 2}));
}

TEST(Sampler, AgreesWithTheBookOnALargeVocabulary) {
  constexpr int32_t kVocab = 50'021;
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = std::round(normal(rng) * 64.0F) / 64.0F;  // many ties
  SamplerScratch scratch(kVocab);
  for (const auto& params : {params_of(1.0F, 777), params_of(1.0F, 0, 0.01F), params_of(1.0F, 0, 0.97F),
                             params_of(0.7F, 30'000, 0.8F), params_of(1.0F, 50'020), params_of(1.0F)}) {
    const std::vector<double> expected = expected_distribution(logits, params);
    std::vector<TokenId> kept;
    for (int32_t id = 0; id < kVocab; ++id) {
      if (expected[static_cast<std::size_t>(id)] > 0.0) kept.push_back(id);
    }
    for (int i = 0; i < test::draws(60, 5); ++i) {
      const TokenId id = sample(logits, kVocab, params, i, scratch);
      EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), id)) << "id " << id;
    }
    std::vector<TokenId> survivors;
    const std::span<const SamplerCandidate> candidates(scratch.candidates);
    for (const auto& candidate : candidates.first(static_cast<std::size_t>(scratch.num_survivors))) {
      survivors.push_back(candidate.id);
    }
    EXPECT_EQ(survivors, kept);
  }
}

TEST(Sampler, SortedRowsAreNoSpecialCase) {
  std::vector<float> ascending(3001);
  std::iota(ascending.begin(), ascending.end(), -1500.0F);
  std::vector<float> descending(ascending.rbegin(), ascending.rend());
  for (int i = 0; i < 50; ++i) {
    EXPECT_GE(sample_once(ascending, params_of(1e6F, 7), i), 3001 - 7);
    EXPECT_LT(sample_once(descending, params_of(1e6F, 7), i), 7);
  }
}

TEST(Sampler, AFilterThatRemovesNothingChangesNothing) {
  SamplerScratch scratch(std::ssize(kLogits));
  const auto vocab = static_cast<int32_t>(kLogits.size());
  for (int i = 0; i < 500; ++i) {
    const TokenId plain = sample(kLogits, vocab, params_of(1.0F), i, scratch);
    EXPECT_EQ(sample(kLogits, vocab, params_of(1.0F, vocab), i, scratch), plain);
    EXPECT_EQ(sample(kLogits, vocab, params_of(1.0F, vocab + 5), i, scratch), plain);
    EXPECT_EQ(sample(kLogits, vocab, params_of(1.0F, 0, std::nextafter(1.0F, 0.0F)), i, scratch), plain);
  }
}

TEST(Sampler, DependsOnSeedAndTokenIndexOnly) {
  SamplerScratch used(std::ssize(kLogits));
  int num_seed_differences = 0;
  int num_index_differences = 0;
  for (int i = 0; i < 300; ++i) {
    const TokenId token = sample(kLogits, 11, params_of(1.0F, 0, 0.95F), i, used);
    EXPECT_EQ(token, sample_once(kLogits, params_of(1.0F, 0, 0.95F), i));
    num_seed_differences += token != sample(kLogits, 11, params_of(1.0F, 0, 0.95F, 8), i, used) ? 1 : 0;
    num_index_differences += token != sample(kLogits, 11, params_of(1.0F, 0, 0.95F), i + 1, used) ? 1 : 0;
  }
  EXPECT_GT(num_seed_differences, 100);
  EXPECT_GT(num_index_differences, 100);
}

TEST(Sampler, ExtremeTemperaturesStayFinite) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(sample_once(kLogits, params_of(std::numeric_limits<float>::denorm_min()), i), 2);
    EXPECT_GE(sample_once(kLogits, params_of(std::numeric_limits<float>::max()), i), 0);
    EXPECT_EQ(sample_once({-3e38F, 3e38F}, params_of(1.0F), i), 1);
  }
}

TEST(Sampler, NeverGrowsItsScratch) {
  std::vector<float> logits(5003);
  std::mt19937 rng(5);
  for (float& x : logits) x = static_cast<float>(rng() % 1000) * 0.01F;
  SamplerScratch scratch(5003);
  const auto* candidates = scratch.candidates.data();
  const auto* weights = scratch.weights.data();
  for (const int32_t top_k : {0, 1, 20, 2501, 2502, 5002, 5003}) {
    for (const float top_p : {0.1F, 0.99F, 1.0F}) sample(logits, 5003, params_of(1.0F, top_k, top_p), 0, scratch);
  }
  EXPECT_EQ(scratch.candidates.data(), candidates);
  EXPECT_EQ(scratch.weights.data(), weights);
}

}  // namespace
}  // namespace ferry
