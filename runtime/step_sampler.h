#pragma once

#include <vector>

#include "runtime/base/thread_pool.h"
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
  /// Several sequences draw at once, each on one thread of `pool`, which outlives it. `vocab_size`: the most columns of logits.
  /// `max_sequences` may sample in a step, with `max_drafts` each.
  StepSampler(ThreadPool& pool, int64_t vocab_size, int64_t max_sequences, int64_t max_drafts);

  /// `logits` of the plan's entries that sample, in order: sum of num_logits rows. Waits for them. Valid until the next call.
  StepChoices run(const StepPlan& plan, HostLogits& logits);

 private:
  static constexpr int kMaxDrawers = 8;  // a thread's working memory is 5 MB for 248320 ids

  /// An entry that samples.
  struct Choice {
    const StepEntry* entry;
    int64_t first_row;  // of the logits; its tokens are put at this place of tokens_ at first
    bool is_drawn;
  };
  /// What a thread that draws works with.
  struct Drawer {
    SamplerScratch scratch;
    std::vector<float> row;  // [vocab]
  };

  void fetch(const StepPlan& plan, HostLogits& logits);
  void choose_all(const HostLogits& logits);
  void choose(const HostLogits& logits, std::size_t choice_idx, Drawer& drawer);
  TokenId draw(ConstMatrixView values, const SamplingParams& params, int64_t token_idx, Drawer& drawer);
  void close_gaps();

  ThreadPool& pool_;
  std::vector<Drawer> drawers_;
  std::vector<Choice> choices_;      // of the step
  int64_t num_drawn_ = 0;            // of these
  std::vector<TokenId> tokens_;      // of each, one after another
  std::vector<int32_t> num_tokens_;  // of each
};

}  // namespace ferry
