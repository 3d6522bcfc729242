#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/base/thread_pool.h"
#include "runtime/grammar_masks.h"
#include "runtime/host_logits.h"
#include "runtime/schedule/sampler.h"
#include "runtime/schedule/step_plan.h"

namespace ferry {

/// From a step's logits to its tokens. A row behind a draft counts only if the row before chose that draft, so what comes out
/// is what plain decoding would choose, one token a step: with the highest logit, and with a seed the same draws. What looks at
/// the tokens before a row (penalties, bad words, min_tokens, a grammar) looks at the drafts before it as well.
///
/// That is the rejection rule of arXiv 2211.17192 for drafts without a distribution of their own: a draft d is accepted if the
/// draw from p is d, with probability p(d), and what replaces it otherwise has the distribution p without d.
///
/// The host gets the values of rows that are drawn from, changed before a token is chosen, or told about (logprobs); the
/// others' tokens are chosen where the logits are. Sized at construction; for sequences that ask for none of penalties,
/// logprobs and a grammar run() allocates nothing. One thread at a time.
class StepSampler {
 public:
  struct Options {
    int64_t vocab_size = 0;         // the most columns of logits
    int64_t max_sequences = 0;      // that may sample in a step
    int64_t max_drafts = 0;         // with each
    std::vector<TokenId> stop_ids;  // of the checkpoint: not chosen before min_tokens
  };

  /// Keeps the sequences' grammars from being used when it is gone.
  class [[nodiscard]] Preparation {
   public:
    explicit Preparation(GrammarMasks& masks) : masks_(masks) {}
    ~Preparation() { masks_.finish(); }
    Preparation(const Preparation&) = delete;
    Preparation& operator=(const Preparation&) = delete;

   private:
    GrammarMasks& masks_;
  };

  /// Several sequences draw at once, each on one thread of `pool`, which outlives it.
  StepSampler(ThreadPool& pool, Options options);

  /// Starts, before the forward pass, what can be known of the plan's rows without their logits.
  Preparation prepare(const StepPlan& plan);

  /// `logits` of the plan that was prepared, of its entries that sample, in order: sum of num_logits rows. Waits for them.
  /// Valid until the next call.
  StepChoices run(const StepPlan& plan, HostLogits& logits);

  /// A token of a prompt that its request wants to hear of (SamplingParams::prompt_logprobs), the next one of its sequence.
  struct PromptToken {
    Sequence* sequence = nullptr;
    int64_t idx = 0;  // of the sequence's tokens
  };
  /// `logits` of the rows before the tokens, one of each. Waits for them. A request for whose logprobs there is no memory has
  /// SampledTokens::failure then.
  void score(std::span<const PromptToken> tokens, HostLogits& logits);

 private:
  static constexpr int kMaxDrawers = 8;  // a thread's working memory is 6 MB for 248320 ids

  /// An entry that samples.
  struct Choice {
    const StepEntry* entry;
    int64_t first_row;  // of the logits; its tokens are put at this place of tokens_ at first
  };
  /// What a thread that draws works with.
  struct Drawer {
    SamplerScratch scratch;
    std::vector<float> row;   // [vocab]
    std::vector<float> kept;  // of a filter
  };

  void fetch(const StepPlan& plan, HostLogits& logits);
  bool needs_values(const StepEntry& entry, int64_t draft_idx, int64_t row) const;
  void choose_all(const HostLogits& logits);
  void choose(const HostLogits& logits, std::size_t choice_idx, Drawer& drawer);
  int64_t choose_tokens(const HostLogits& logits, const Choice& choice, Drawer& drawer);
  TokenId draw(const HostLogits& logits, int64_t row, Sequence& sequence, int64_t num_drafts, Drawer& drawer) const;
  void close_gaps();
  static void make_room(const PromptToken& token);
  static void score_token(const PromptToken& token, ConstMatrixView values, Drawer& drawer);
  static TokenLogprobs logprobs_of(ConstMatrixView values, TokenId id, int32_t num_top, Drawer& drawer);

  ThreadPool& pool_;
  const Options options_;
  GrammarMasks masks_;
  std::vector<Drawer> drawers_;
  std::vector<Choice> choices_;      // of the step
  int64_t num_drawn_ = 0;            // of these, with values
  std::vector<TokenId> tokens_;      // of each, one after another
  std::vector<int32_t> num_tokens_;  // of each
};

}  // namespace ferry
