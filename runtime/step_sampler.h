#pragma once

#include <vector>

#include "kernels/tensor.h"
#include "runtime/schedule/sampler.h"
#include "runtime/schedule/step_plan.h"

namespace ferry {

/// From a step's logits to its tokens. A row behind a draft counts only if the row before chose that draft, so what comes out
/// is what plain decoding would choose, one token a step: with the highest logit, and with a seed the same draws.
///
/// That is the rejection rule of arXiv 2211.17192 for drafts without a distribution of their own: a draft d is accepted if the
/// draw from p is d, with probability p(d), and what replaces it otherwise has the distribution p without d.
///
/// Sized at construction; run() allocates nothing. One thread at a time.
class StepSampler {
 public:
  /// `vocab_size`: columns of the logits; ids from `vocab_size_effective` on are padding and never chosen. `max_sequences` may
  /// sample in a step, with `max_drafts` each.
  StepSampler(int64_t vocab_size, int32_t vocab_size_effective, int64_t max_sequences, int64_t max_drafts);

  /// `logits` [sum of num_logits, vocab] of the plan's entries that sample, in order. Valid until the next call.
  StepChoices run(const StepPlan& plan, ConstMatrixView logits);

 private:
  TokenId choose(ConstMatrixView logits, int64_t row, const Sequence& sequence, int64_t token_idx);

  int32_t vocab_size_effective_;
  SamplerScratch scratch_;
  std::vector<float> row_;  // [vocab]
  std::vector<TokenId> tokens_;
  std::vector<int32_t> num_tokens_;
};

}  // namespace ferry
