#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/schedule/request.h"
#include "runtime/schedule/token_counts.h"

// What a request says about single tokens, applied to a row of logits before one is chosen. Pure functions of the row, the
// parameters and the tokens before it.
//
// The order is that of vLLM 0.33 (v1/sample/sampler.py), which takes logprobs before all of it: the grammar's mask, allowed
// ids, bad words, stop ids before min_tokens, bias, repetition, frequency and presence penalties. sampler.h goes on from there.

namespace ferry {

/// What filters look at beside the row and the parameters.
struct FilterContext {
  RowHistory history;
  std::span<const uint32_t> mask;      // which ids may be chosen, as TokenGrammar::fill_mask writes it; empty: all
  std::span<const TokenId> stop_ids;   // of the checkpoint
  std::span<const TokenCount> counts;  // of the history, if has_penalties()
};

/// Whether counts of tokens are needed.
inline bool has_penalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F;
}

/// Whether a row behind `num_generated` tokens of the completion may be changed by anything but a mask.
bool has_filters(const SamplingParams& params, int64_t num_generated);

/// Makes the logits of forbidden ids of `row` [vocab] minus infinity and changes others. Ids beyond the row are left out.
/// `kept` is working memory.
///
/// - Bad words look at the completion alone, as vLLM's do: one whose first tokens end the prompt is not recognised.
/// - A repetition penalty is for tokens of the prompt or the completion: a positive logit is divided by it, another multiplied
///   (arXiv 1909.05858 §4.1, with transformers' sign rule). The other two are for tokens of the completion: what is subtracted
///   is frequency_penalty times how often it is there, then presence_penalty.
void filter_logits(std::span<float> row, const SamplingParams& params, const FilterContext& context, std::vector<float>& kept);

}  // namespace ferry
