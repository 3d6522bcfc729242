#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/schedule/request.h"
#include "runtime/schedule/token_candidates.h"

// From a row of logits, which logit_filters.h may have changed, to a token. The order of the filters is that of vLLM and of
// Hugging Face's generate(): temperature, then min-p, then top-k, then top-p on the distribution that they left, renormalised.
// Everything is a pure function of the row, the parameters and the token's index, so a sequence's tokens do not depend on its
// neighbours in the batch.

namespace ferry {

/// Whether a token is that of the highest logit, whatever the others are.
inline bool is_greedy(const SamplingParams& params) { return params.temperature == 0.0F; }

/// Working memory of sample(), sized once; sample() allocates nothing. One thread at a time.
struct SamplerScratch {
  /// `vocab_size`: the longest row of logits to come.
  explicit SamplerScratch(int64_t vocab_size);

  std::vector<SamplerCandidate> candidates;  // [vocab_size]
  std::vector<double> weights;               // [vocab_size]
  int64_t num_survivors = 0;                 // candidates that the last draw chose from, in order of id
};

/// Chooses a token from `logits` [vocab].
///
/// - Ids >= `vocab_size_effective` (1 ‥ vocab) are padding of the checkpoint's table and are never chosen, nor are ids whose
///   logit is NaN or minus infinity. If none is left the result is kNoToken.
/// - temperature 0: the highest logit, the lowest id on ties.
/// - Otherwise a draw from softmax(logits / temperature), in double, over what the filters leave. Ties at a filter's edge are
///   kept in order of id. min-p keeps the logits from max + temperature * log(min_p) on. top-p keeps the tokens before which
///   less than top_p of the mass lies, hence at least one. A filter that removes nothing changes nothing: the draw walks the
///   survivors in order of id.
/// - The random number is counter_uniform(params.seed, token_idx); `token_idx` counts the generated tokens from 0.
///
/// `params` must have passed validate_sampling (sampling_params.h). Several infinite logits share the probability evenly.
TokenId sample(std::span<const float> logits, int32_t vocab_size_effective, const SamplingParams& params, int64_t token_idx,
               SamplerScratch& scratch);

}  // namespace ferry
