#include "runtime/schedule/token_candidates.h"

#include <algorithm>
#include <array>

namespace ferry {
namespace {

constexpr std::size_t kMaxLanes = 32;  // independent maxima: several vector registers on every instruction set

}  // namespace

// Two plain passes, so that the compiler can take a vector of logits at a time.
TokenId highest(std::span<const float> logits) {
  std::array<float, kMaxLanes> lanes;
  lanes.fill(kLowestLogit);
  std::size_t i = 0;
  for (; i + kMaxLanes <= logits.size(); i += kMaxLanes) {
    for (std::size_t j = 0; j < kMaxLanes; ++j) lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
  }
  float best = *std::max_element(lanes.begin(), lanes.end());
  for (; i < logits.size(); ++i) best = logits[i] > best ? logits[i] : best;
  if (best == kLowestLogit) return kNoToken;
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), best) - logits.begin());
}

std::span<SamplerCandidate> collect(std::span<const float> logits, const SamplerCandidate& last,
                                    std::span<SamplerCandidate> out) {
  std::size_t num_kept = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const SamplerCandidate candidate{logits[i], static_cast<TokenId>(i)};
    const bool ties = candidate.logit == last.logit && candidate.id <= last.id;
    const bool keeps = candidate.logit > kLowestLogit && (candidate.logit > last.logit || ties);
    out[num_kept] = candidate;  // overwritten by the next one if not kept: no branch to mispredict
    num_kept += keeps ? 1 : 0;
  }
  return out.first(num_kept);
}

// Keeps up to 2k tokens above the best known bound and halves them when full.
std::span<SamplerCandidate> collect_top_k(std::span<const float> logits, std::size_t k, float bound,
                                          std::span<SamplerCandidate> out) {
  const std::size_t limit = std::min(2 * k, logits.size());
  std::size_t num_kept = 0;
  const auto keep_best = [&] {
    std::nth_element(&out[0], &out[k - 1], &out[0] + num_kept, ranks_before);
    num_kept = k;
    bound = out[k - 1].logit;  // a later token with this logit has a higher id and ranks behind
  };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > bound)) continue;
    out[num_kept++] = {logits[i], static_cast<TokenId>(i)};
    if (num_kept == limit) keep_best();
  }
  if (num_kept > k) keep_best();
  return out.first(num_kept);
}

}  // namespace ferry
