#pragma once

#include <optional>
#include <vector>

#include "runtime/drafter.h"
#include "runtime/host_logits.h"
#include "runtime/model/mtp.h"
#include "runtime/schedule/draft_policy.h"

namespace ferry {

/// By the checkpoint's MTP layer, whose keys and values of every position are kept like those of the trunk's layers: it takes
/// in the pairs of all rows that a step has made certain, and guesses from the last of each sequence. Each further guess goes
/// on from the one before; what it appended is overwritten later.
///
/// With Speculation::Source::kAuto the numbers of drafts follow what was measured (DraftPolicy) and how often a sequence's
/// drafts were right. While no sequence gets any, pairs wait, the last kMaxPutOff of each sequence; older ones are dropped, so
/// that they cost nothing at all. Once the policy has given drafts up, so are those of prompts. To the layer the text then has
/// a gap, which makes its guesses a little worse for some time.
///
/// Allocates nothing after construction.
class MtpDrafter final : public Drafter {
 public:
  static constexpr int64_t kMaxPutOff = 16;  // pairs of a sequence; less where a step has fewer rows

  /// Works with `trunk` between its steps; all outlive it. Ids from `vocab_size_effective` on are never guessed.
  /// speculation.max_drafts >= 1.
  MtpDrafter(const ModelConfig& config, const TrunkWeights& weights, Trunk& trunk, DType dtype, int32_t vocab_size_effective,
             const Speculation& speculation);

  void keep_step(const StepPlan& plan) override;
  void note_step(const StepPlan& plan, const StepChoices& choices, double seconds) override;
  DraftWork draft(const StepPlan& plan, Scheduler& scheduler, const DraftContext& context) override;

 private:
  struct Slot;
  Slot begun_slot(const StepEntry& entry);
  const int32_t* block_table(const Sequence& sequence) { return sequence.blocks.data() + slot_of(sequence).first_block; }

  /// What is known of the sequence in a slot.
  struct Slot {
    int64_t first_block = 0;    // of the sequence's, in which they begin: behind those that are others', too
    int64_t num_pairs = 0;      // of certain tokens, in the KV layer
    int64_t num_dropped = 0;    // before, between or behind those
    int64_t num_put_off = 0;    // behind all of them, whose hidden rows wait
    int64_t first_put_off = 0;  // of the slot's rows for that, which form a ring
    DraftRecord record;
  };
  /// A sequence that gets drafts.
  struct Guess {
    Sequence* sequence;
    int64_t num_wanted;
    int64_t num_past;  // pairs of certain tokens
  };

  void note_pairs(const StepPlan& plan, Scheduler& scheduler);
  void guess(const StepPlan& plan, Scheduler& scheduler, const DraftContext& context);
  void choose(const StepPlan& plan);
  int64_t num_drafts_of(const StepEntry& entry) const;
  bool may_put_off(const StepPlan& plan) const;
  void put_off(const StepPlan& plan);
  void put_off(Slot& slot, int32_t slot_idx, ConstMatrixView row);
  void add_certain_pairs(const StepPlan& plan);
  void take_in_put_off(const StepPlan& plan, const DraftContext& context);
  void clear_pairs();
  void add_pairs(const StepEntry& entry, int64_t num_wanted);
  void add_put_off_pairs(Sequence& sequence);
  void add_rows(Sequence& sequence, int64_t num_pairs, SequenceRows::Logits logits);
  void add_next_pairs(std::size_t num_done);
  void run(ConstMatrixView hidden, const DraftContext& context);
  Slot& slot_of(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }
  /// Row of hidden_ where the i-th pair that a slot has put off lies.
  int64_t put_off_row(int32_t slot, int64_t i) const {
    return max_tokens_ + slot * max_put_off_ + (slots_[static_cast<std::size_t>(slot)].first_put_off + i) % max_put_off_;
  }

  Stream& stream_;
  MtpLayer mtp_;
  int64_t max_drafts_, max_tokens_, max_put_off_;
  std::optional<DraftPolicy> policy_;  // of kAuto
  int64_t num_chosen_ = 0;             // drafts for each sequence in the next step, or in the one that runs
  bool has_given_up_ = false;          // the policy, for now: sequences that begin get no drafts either
  int64_t num_passes_ = 0;             // of the MTP layer behind the step
  int64_t num_pass_rows_ = 0;          // of those
  double break_even_ = 0;              // of the policy
  double draft_seconds_ = 0;           // that guessing for the next step took
  Matrix hidden_;                      // [T + num_slots * max_put_off_, hidden_dim] of the step, then what was put off
  HostLogits logits_;                  // of the pass that ran last
  StepRows rows_;
  std::vector<int32_t> hidden_rows_;  // of each pair
  std::vector<Slot> slots_;
  DraftRecord common_record_;  // of all sequences
  std::vector<Guess> guesses_;
  std::vector<std::vector<TokenId>> drafts_;  // [num_slots] of each guess
  std::vector<std::size_t> asking_;           // guesses with a row of logits
};

}  // namespace ferry
