#pragma once

#include <vector>

#include "runtime/drafter.h"
#include "runtime/model/mtp.h"
#include "runtime/schedule/sampler.h"

namespace ferry {

/// By the checkpoint's MTP layer, whose keys and values of every position are kept like those of the trunk's layers: behind
/// each step it takes in the pairs of all rows that the step has made certain, and guesses from the last of each sequence. Each
/// further guess goes on from the one before; the next step overwrites what it appended. Allocates nothing after construction.
class MtpDrafter final : public Drafter {
 public:
  /// Works with `trunk` between its steps; all outlive it. Ids from `vocab_size_effective` on are never guessed.
  MtpDrafter(const ModelConfig& config, const TrunkWeights& weights, Trunk& trunk, DType dtype, int32_t vocab_size_effective,
             int64_t max_drafts);

  void keep_step(const StepPlan& plan) override;
  void draft(const StepPlan& plan, Scheduler& scheduler, const DraftContext& context) override;

 private:
  /// A sequence that gets drafts.
  struct Guess {
    Sequence* sequence;
    int64_t num_wanted;
    int64_t num_past;  // pairs of certain tokens
  };

  void add_certain_pairs(const StepPlan& plan);
  void add_next_pairs(std::size_t num_done);
  void run(ConstMatrixView hidden, const DraftContext& context);
  TokenId best_token(ConstMatrixView logits, int64_t row);

  MtpLayer mtp_;
  int32_t vocab_size_effective_;
  int64_t max_drafts_;
  ConstMatrixView kept_;  // [T, hidden_dim] of the step that was kept
  ConstMatrixView logits_;
  StepRows rows_;
  std::vector<int32_t> hidden_rows_;  // of each pair
  std::vector<Guess> guesses_;
  std::vector<std::vector<TokenId>> drafts_;  // [max_sequences] of each guess
  std::vector<std::size_t> asking_;           // guesses with a row of logits
  SamplerScratch scratch_;
  std::vector<float> row_;  // [vocab]
};

}  // namespace ferry
