#pragma once

#include <vector>

#include "runtime/host_logits.h"
#include "runtime/schedule/sampler.h"
#include "runtime/schedule/step_plan.h"

namespace ferry {

/// From a step's logits to its tokens. A row behind a draft counts only if the row before chose that draft, so what comes out
/// is what plain decoding would choose, one token a step: with the highest logit, and with a seed the same draws.
///
/// That is the rejection rule of arXiv 2211.17192 for drafts without a distribution of their own: a draft d is accepted if the
/// draw from p is d, with probability p(d), and what replaces it otherwise has the distribution p without d.
///
/// The host gets the values of rows that are drawn from; the others' tokens are chosen where the logits are. Sized at
/// construction; run() allocates nothing. One thread at a time.
class StepSampler {
 public:
  /// `vocab_size`: the most columns of logits. `max_sequences` may sample in a step, with `max_drafts` each.
  StepSampler(int64_t vocab_size, int64_t max_sequences, int64_t max_drafts);

  /// `logits` of the plan's entries that sample, in order: sum of num_logits rows. Waits for them. Valid until the next call.
  StepChoices run(const StepPlan& plan, HostLogits& logits);

 private:
  /// Gets the rows' tokens, or what draws need.
  void fetch(const StepPlan& plan, HostLogits& logits);
  TokenId choose(const HostLogits& logits, int64_t row, const Sequence& sequence, int64_t token_idx);

  SamplerScratch scratch_;
  std::vector<float> row_;  // [vocab]
  std::vector<TokenId> tokens_;
  std::vector<int32_t> num_tokens_;
};

}  // namespace ferry
