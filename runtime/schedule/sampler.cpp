#include "runtime/schedule/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/schedule/counter_random.h"

namespace ferry {
namespace {

constexpr std::ptrdiff_t kFirstNucleusBlock = 256;  // tokens sorted at first when looking for the end of the nucleus
constexpr std::ptrdiff_t kNucleusGrowth = 4;
constexpr std::size_t kFewCandidates = 1024;

/// Turns a logit into a probability up to the common factor: exp((logit - max) / temperature), 1 at the maximum, also where
/// both are infinite.
struct Softmax {
  float max_logit;
  double temperature;
  double weight(float logit) const {
    if (logit == max_logit) return 1.0;
    return std::exp((static_cast<double>(logit) - static_cast<double>(max_logit)) / temperature);
  }
};

/// The lowest logit that min-p keeps: that of min_p times the likeliest token's probability, rounded up.
float least_kept(const Softmax& softmax, float min_p) {
  if (min_p == 0.0F) return kLowestLogit;
  if (std::isinf(softmax.max_logit)) return softmax.max_logit;
  const double least = std::max<double>(softmax.max_logit + softmax.temperature * std::log(static_cast<double>(min_p)),
                                        std::numeric_limits<float>::lowest());
  const auto rounded = static_cast<float>(least);
  return rounded < least ? std::nextafter(rounded, -kLowestLogit) : rounded;
}

/// The last token of the nucleus: the first one, best first, at which the summed probability reaches top_p. Sorts only as far
/// as it has to look; reorders `kept`, which is not empty.
SamplerCandidate nucleus_end(const Softmax& softmax, double top_p, std::span<SamplerCandidate> kept) {
  double total = 0.0;
  for (const SamplerCandidate& candidate : kept) total += softmax.weight(candidate.logit);
  // All tokens lighter than this weigh at most half of what the nucleus may lack, so it ends before them.
  const double least_weight = 0.5 * (1.0 - top_p) * total / static_cast<double>(kept.size());
  const double least_logit = softmax.max_logit + softmax.temperature * std::log(least_weight);
  const auto end = std::partition(kept.begin(), kept.end(), [&](const SamplerCandidate& c) { return c.logit >= least_logit; });

  const double target = top_p * total;
  double mass = 0.0;
  std::ptrdiff_t block = kFirstNucleusBlock;
  for (auto first = kept.begin(); first != end; block *= kNucleusGrowth) {
    const auto last = first + std::min(block, end - first);
    if (last != end) std::nth_element(first, last - 1, end, ranks_before);
    std::sort(first, last, ranks_before);
    for (; first != last; ++first) {
      mass += softmax.weight(first->logit);
      if (mass >= target) return *first;
    }
  }
  return *(end - 1);
}

/// The members of `few` that do not rank behind `last`, in order of id: what collect() would find in the whole row.
std::span<SamplerCandidate> trim(std::span<SamplerCandidate> few, const SamplerCandidate& last) {
  const auto end = std::partition(few.begin(), few.end(), [&](const SamplerCandidate& c) { return !ranks_before(last, c); });
  std::sort(few.begin(), end, [](const SamplerCandidate& a, const SamplerCandidate& b) { return a.id < b.id; });
  return few.first(static_cast<std::size_t>(end - few.begin()));
}

/// Inverts the cumulative distribution of `survivors` at `uniform` in [0, 1); kNoToken if rounding leaves nothing.
TokenId draw(const Softmax& softmax, double uniform, std::span<const SamplerCandidate> survivors, std::span<double> weights) {
  double total = 0.0;
  for (std::size_t i = 0; i < survivors.size(); ++i) {
    weights[i] = softmax.weight(survivors[i].logit);
    total += weights[i];
  }
  const double target = uniform * total;
  double mass = 0.0;
  for (std::size_t i = 0; i < survivors.size(); ++i) {
    mass += weights[i];
    if (mass > target) return survivors[i].id;
  }
  return kNoToken;
}

}  // namespace

SamplerScratch::SamplerScratch(int64_t vocab_size) {
  FERRY_CHECK_GE(vocab_size, 1);
  candidates.resize(static_cast<std::size_t>(vocab_size));
  weights.resize(static_cast<std::size_t>(vocab_size));
}

TokenId sample(std::span<const float> logits, int32_t vocab_size_effective, const SamplingParams& params, int64_t token_idx,
               SamplerScratch& scratch) {
  FERRY_CHECK(vocab_size_effective >= 1 && vocab_size_effective <= std::ssize(logits))
      << vocab_size_effective << " of " << logits.size() << " ids";
  FERRY_CHECK_LE(static_cast<std::size_t>(vocab_size_effective), scratch.candidates.size());
  FERRY_CHECK_GE(token_idx, 0);
  const std::span<const float> row = logits.first(static_cast<std::size_t>(vocab_size_effective));
  const TokenId best = highest(row);
  if (best == kNoToken || is_greedy(params)) return best;

  const Softmax softmax{row[static_cast<std::size_t>(best)], params.temperature};
  // All that ranks behind this is not kept.
  SamplerCandidate last{least_kept(softmax, params.min_p), std::numeric_limits<TokenId>::max()};
  const bool filters_k = params.top_k > 0 && params.top_k < vocab_size_effective;
  const bool filters_p = params.top_p < 1.0F;
  std::span<SamplerCandidate> kept;
  if (filters_k) {
    kept = collect_top_k(row, static_cast<std::size_t>(params.top_k), std::nextafter(last.logit, kLowestLogit),
                         scratch.candidates);
    last = *std::max_element(kept.begin(), kept.end(), ranks_before);
  } else if (filters_p) {
    kept = collect(row, last, scratch.candidates);
  }
  if (filters_p) last = nucleus_end(softmax, params.top_p, kept);
  const bool is_few = !kept.empty() && kept.size() <= kFewCandidates;  // sorting them beats a pass over the row
  kept = is_few ? trim(kept, last) : collect(row, last, scratch.candidates);
  scratch.num_survivors = std::ssize(kept);
  const double uniform = counter_uniform(params.seed, static_cast<uint64_t>(token_idx));
  const TokenId drawn = draw(softmax, uniform, kept, scratch.weights);
  return drawn == kNoToken ? best : drawn;
}

}  // namespace ferry
