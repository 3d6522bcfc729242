#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "runtime/base/types.h"

// The likeliest tokens of a row of logits. NaN and minus infinity never become candidates.

namespace ferry {

inline constexpr float kLowestLogit = -std::numeric_limits<float>::infinity();

/// A token that is still in the running.
struct SamplerCandidate {
  float logit;
  TokenId id;
};

/// The candidates' order: higher logit first, then lower id. A strict total order, since NaN never becomes a candidate.
inline bool ranks_before(const SamplerCandidate& a, const SamplerCandidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/// The highest logit's id, the lowest one on ties; kNoToken if there is no candidate.
TokenId highest(std::span<const float> logits);

/// Writes the tokens that do not rank behind `last` to the front of `out` [>= logits.size()], in order of id.
std::span<SamplerCandidate> collect(std::span<const float> logits, const SamplerCandidate& last,
                                    std::span<SamplerCandidate> out);

/// Writes the best of the tokens above `bound`, at most k < logits.size(), to the front of `out` [>= logits.size()], in no
/// particular order. Linear in the vocabulary for any k.
std::span<SamplerCandidate> collect_top_k(std::span<const float> logits, std::size_t k, float bound,
                                          std::span<SamplerCandidate> out);

}  // namespace ferry
