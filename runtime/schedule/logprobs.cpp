#include "runtime/schedule/logprobs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace ferry {
namespace {

constexpr std::size_t kNumSums = 8;  // independent ones: several additions at a time

/// A row's distribution: the logarithm of a probability is (logit - max) - log_total.
struct LogSoftmax {
  float max_logit = kLowestLogit;
  double log_total = 0.0;

  float of(float logit) const {
    if (!(logit > kLowestLogit)) return kLowestLogit;
    const double distance = logit == max_logit ? 0.0 : static_cast<double>(logit) - static_cast<double>(max_logit);
    return static_cast<float>(distance - log_total);
  }
};

double weight(float logit, float max_logit) {
  if (logit == max_logit) return 1.0;
  return logit > kLowestLogit ? std::exp(static_cast<double>(logit) - static_cast<double>(max_logit)) : 0.0;
}

LogSoftmax log_softmax(std::span<const float> logits) {
  const TokenId best = highest(logits);
  if (best == kNoToken) return {};
  const float max_logit = logits[static_cast<std::size_t>(best)];
  std::array<double, kNumSums> sums{};
  for (std::size_t i = 0; i < logits.size(); ++i) sums[i % kNumSums] += weight(logits[i], max_logit);
  return {.max_logit = max_logit, .log_total = std::log(std::accumulate(sums.begin(), sums.end(), 0.0))};
}

/// 1 for the first of all. The row ends where the id's own place is looked for, if it has none.
int32_t rank_of(std::span<const float> logits, TokenId id) {
  const auto usable = [](float logit) { return logit > kLowestLogit ? logit : kLowestLogit; };
  const std::size_t place = std::min(static_cast<std::size_t>(id), logits.size());
  if (place == logits.size()) return static_cast<int32_t>(place) + 1;
  const float own = usable(logits[place]);
  int32_t num_before = 0;
  for (std::size_t i = 0; i < place; ++i) num_before += usable(logits[i]) >= own ? 1 : 0;
  for (std::size_t i = place + 1; i < logits.size(); ++i) num_before += logits[i] > own ? 1 : 0;
  return num_before + 1;
}

std::span<SamplerCandidate> likeliest(std::span<const float> logits, int32_t num_top, std::span<SamplerCandidate> scratch) {
  const bool is_all = num_top == SamplingParams::kWholeVocabulary || num_top >= std::ssize(logits);
  const std::span<SamplerCandidate> best =
      is_all ? collect(logits, {kLowestLogit, std::numeric_limits<TokenId>::max()}, scratch)
             : collect_top_k(logits, static_cast<std::size_t>(num_top), kLowestLogit, scratch);
  std::ranges::sort(best, ranks_before);
  return best;
}

}  // namespace

TokenLogprobs token_logprobs(std::span<const float> logits, TokenId id, int32_t num_top, std::span<SamplerCandidate> scratch) {
  const LogSoftmax softmax = log_softmax(logits);
  const bool is_known = id < std::ssize(logits);
  TokenLogprobs told{.chosen = {.id = id,
                                .logprob = is_known ? softmax.of(logits[static_cast<std::size_t>(id)]) : kLowestLogit,
                                .rank = rank_of(logits, id)}};
  if (num_top == 0) return told;
  const std::span<const SamplerCandidate> best = likeliest(logits, num_top, scratch);
  told.top.reserve(best.size());
  for (const SamplerCandidate& candidate : best) {
    told.top.push_back(
        {.id = candidate.id, .logprob = softmax.of(candidate.logit), .rank = static_cast<int32_t>(told.top.size()) + 1});
  }
  return told;
}

}  // namespace ferry
