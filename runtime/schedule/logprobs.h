#pragma once

#include <span>
#include <vector>

#include "runtime/schedule/request.h"
#include "runtime/schedule/token_candidates.h"

namespace ferry {

/// What a row of logits [vocab], as the model gave it and without padding, says of a token that is there and of the likeliest
/// ones: logits minus the logarithm of the sum of their exponentials, in double, added up in an order that depends on the row's
/// size alone.
///
/// - `num_top` is how many of the likeliest are told, or SamplingParams::kWholeVocabulary.
/// - A NaN counts as minus infinity. Ids without any probability have the logarithm minus infinity; they are not among the
///   likeliest, so that there may be fewer. An `id` beyond the row ranks behind all of it.
/// - Several infinite logits share the probability evenly.
///
/// `scratch` [>= logits.size()] is working memory.
TokenLogprobs token_logprobs(std::span<const float> logits, TokenId id, int32_t num_top, std::span<SamplerCandidate> scratch);

}  // namespace ferry
