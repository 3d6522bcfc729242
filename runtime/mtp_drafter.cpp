#include "runtime/mtp_drafter.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {

MtpDrafter::MtpDrafter(const ModelConfig& config, const TrunkWeights& weights, Trunk& trunk, DType dtype,
                       int32_t vocab_size_effective, const Speculation& speculation)
    : stream_(trunk.runner().stream()),
      mtp_(config, weights, trunk, dtype),
      max_drafts_(speculation.max_drafts),
      max_tokens_(trunk.limits().max_tokens),
      max_put_off_(speculation.source == Speculation::Source::kAuto ? std::min(kMaxPutOff, max_tokens_) : 0),
      logits_(stream_, {.dtype = dtype,
                        .max_rows = trunk.limits().max_sequences,
                        .vocab_size = config.vocab_size,
                        .vocab_size_effective = vocab_size_effective,
                        .has_values = false}),
      slots_(static_cast<std::size_t>(trunk.limits().max_sequences)),
      drafts_(slots_.size()) {
  if (speculation.source == Speculation::Source::kAuto) policy_.emplace(max_drafts_);
  hidden_ = Matrix(stream_.memory(), dtype, max_tokens_ + std::ssize(slots_) * max_put_off_, config.hidden_dim);
  for (std::vector<TokenId>& drafts : drafts_) drafts.reserve(static_cast<std::size_t>(max_drafts_));
}

void MtpDrafter::keep_step(const StepPlan& plan) { mtp_.copy_hidden(hidden_.top(plan.num_rows)); }

void MtpDrafter::note_step(const StepPlan& plan, const StepChoices& choices, double seconds) {
  std::size_t sample = 0;
  for (const StepEntry& entry : plan.entries) {
    Slot& slot = slot_of(*entry.sequence);
    if (entry.begins) slot = begun_slot(entry);
    if (!entry.samples) continue;
    const int64_t num_right = choices.num_tokens[sample++] - 1;
    slot.record.add(entry.num_drafts, num_right);
    common_record_.add(entry.num_drafts, num_right);
  }
  if (!policy_ || plan.num_prefill_tokens > 0) return;
  policy_->observe(plan.num_samples, num_chosen_, seconds + draft_seconds_);
}

/// Of the tokens that a sequence begins with the pairs are there, or none are: then its own begin in its first block that is
/// nobody else's. The last of those that are there was made with the token that followed in the other's prompt, which changes
/// guesses and no token.
MtpDrafter::Slot MtpDrafter::begun_slot(const StepEntry& entry) {
  const CachedPrefix& cached = entry.sequence->cached;
  Slot slot{.record = DraftRecord(&common_record_)};
  slot.first_block = cached.has_pairs ? 0 : cached.num_blocks;
  (cached.has_pairs ? slot.num_pairs : slot.num_dropped) = entry.first_token;
  return slot;
}

/// Tells the prefix cache of prompts whose pairs are all there.
void MtpDrafter::note_pairs(const StepPlan& plan, Scheduler& scheduler) {
  for (const StepEntry& entry : plan.entries) {
    const Sequence& sequence = *entry.sequence;
    if (sequence.finish_reason != FinishReason::kNone) continue;
    const Slot& slot = slot_of(sequence);
    if (slot.num_dropped == 0) scheduler.note_pairs(sequence, slot.num_pairs);
  }
}

DraftWork MtpDrafter::draft(const StepPlan& plan, Scheduler& scheduler, const DraftContext& context) {
  const auto begin = std::chrono::steady_clock::now();
  choose(plan);
  num_passes_ = num_pass_rows_ = 0;
  guesses_.clear();
  if (may_put_off(plan)) {
    put_off(plan);
  } else {
    guess(plan, scheduler, context);
  }
  draft_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {.num_rows = num_pass_rows_, .num_sequences = std::ssize(guesses_)};
}

/// Takes in what became certain, and goes on from there.
void MtpDrafter::guess(const StepPlan& plan, Scheduler& scheduler, const DraftContext& context) {
  take_in_put_off(plan, context);
  add_certain_pairs(plan);
  if (hidden_rows_.empty()) return;
  run(hidden_.view(), context);
  note_pairs(plan, scheduler);
  for (std::size_t num_done = 0; !asking_.empty();) {
    const std::span<const TokenId> best = logits_.all_tokens();
    for (std::size_t row = 0; row < asking_.size(); ++row) {
      // Without a number any will do: a trunk whose logits are no numbers ends the sequence itself.
      drafts_[asking_[row]].push_back(best[row] == kNoToken ? 0 : best[row]);
    }
    add_next_pairs(++num_done);
    if (!asking_.empty()) run(mtp_.hidden(), context);
  }
  for (std::size_t i = 0; i < guesses_.size(); ++i) scheduler.propose(*guesses_[i].sequence, drafts_[i]);
}

/// Sets how many drafts sequences get for the step after this plan.
void MtpDrafter::choose(const StepPlan& plan) {
  num_chosen_ = max_drafts_;
  has_given_up_ = false;
  if (!policy_) return;
  const auto is_open = [](const StepEntry& entry) {
    return entry.samples && entry.sequence->finish_reason == FinishReason::kNone;
  };
  const int64_t num_open = std::ranges::count_if(plan.entries, is_open);
  if (num_open == 0) return;
  // A sequence gets no draft that is not worth its row, so none of its tokens is expected of one either.
  DraftPolicy::ExpectedTokens tokens{};
  for (int64_t k = 0; k <= max_drafts_; ++k) {
    const double break_even = policy_->break_even(num_open, k);
    for (const StepEntry& entry : plan.entries) {
      if (!is_open(entry)) continue;
      const DraftRecord& record = slot_of(*entry.sequence).record;
      tokens[static_cast<std::size_t>(k)] += record.expected_tokens(record.worthwhile(k, break_even));
    }
  }
  num_chosen_ = policy_->choose(num_open, tokens);
  break_even_ = policy_->break_even(num_open, num_chosen_);
  has_given_up_ = policy_->has_given_up(num_open, num_chosen_);
}

int64_t MtpDrafter::num_drafts_of(const StepEntry& entry) const {
  const int64_t useful = useful_drafts(entry, num_chosen_);
  if (useful == 0 || !policy_) return useful;
  return slots_[static_cast<std::size_t>(entry.sequence->slot)].record.worthwhile(useful, break_even_);
}

/// Whether nobody gets drafts.
bool MtpDrafter::may_put_off(const StepPlan& plan) const {
  if (!policy_ || (plan.num_prefill_tokens > 0 && !has_given_up_)) return false;
  return std::ranges::all_of(plan.entries, [&](const StepEntry& entry) {
    return entry.sequence->finish_reason != FinishReason::kNone || num_drafts_of(entry) == 0;
  });
}

void MtpDrafter::put_off(const StepPlan& plan) {
  for (const StepEntry& entry : plan.entries) {
    const Sequence& sequence = *entry.sequence;
    if (sequence.finish_reason != FinishReason::kNone) continue;
    const int64_t num_certain = entry.num_rows - entry.num_drafts + sequence.num_replayed;
    for (int64_t i = 0; i < num_certain; ++i)
      put_off(slot_of(sequence), sequence.slot, hidden_.view().rows_from(entry.first_row + i, 1));
  }
}

void MtpDrafter::put_off(Slot& slot, int32_t slot_idx, ConstMatrixView row) {
  if (slot.num_put_off == max_put_off_) {
    slot.first_put_off = (slot.first_put_off + 1) % max_put_off_;
    --slot.num_put_off;
    ++slot.num_dropped;
  }
  copy_rows(stream_, row, hidden_.view().rows_from(put_off_row(slot_idx, slot.num_put_off++), 1));
}

/// Makes room where all pairs that wait do not fit one pass beside the plan's rows.
void MtpDrafter::take_in_put_off(const StepPlan& plan, const DraftContext& context) {
  int64_t num_waiting = 0;
  for (const StepEntry& entry : plan.entries) {
    if (entry.sequence->finish_reason == FinishReason::kNone) num_waiting += slot_of(*entry.sequence).num_put_off;
  }
  if (num_waiting + plan.num_rows <= max_tokens_) return;
  clear_pairs();
  for (const StepEntry& entry : plan.entries) {
    if (entry.sequence->finish_reason != FinishReason::kNone) continue;
    if (std::ssize(hidden_rows_) + max_put_off_ > max_tokens_) {
      run(hidden_.view(), context);
      clear_pairs();
    }
    add_put_off_pairs(*entry.sequence);
  }
  if (!hidden_rows_.empty()) run(hidden_.view(), context);
}

/// Of every row that turned out right: a prompt's, the last token's, and those of right drafts; before them what was put off.
void MtpDrafter::add_certain_pairs(const StepPlan& plan) {
  clear_pairs();
  guesses_.clear();
  asking_.clear();
  for (const StepEntry& entry : plan.entries) {
    if (entry.sequence->finish_reason == FinishReason::kNone) add_pairs(entry, num_drafts_of(entry));
  }
}

void MtpDrafter::clear_pairs() {
  rows_.clear();
  hidden_rows_.clear();
}

void MtpDrafter::add_put_off_pairs(Sequence& sequence) {
  Slot& slot = slot_of(sequence);
  if (slot.num_put_off == 0) return;
  for (int64_t i = 0; i < slot.num_put_off; ++i) hidden_rows_.push_back(static_cast<int32_t>(put_off_row(sequence.slot, i)));
  add_rows(sequence, slot.num_put_off, SequenceRows::Logits::kNone);
  slot.num_put_off = 0;
}

/// The pairs of the next `num_pairs` positions, whose hidden rows are named already.
void MtpDrafter::add_rows(Sequence& sequence, int64_t num_pairs, SequenceRows::Logits logits) {
  Slot& slot = slot_of(sequence);
  const auto first_token = static_cast<std::size_t>(slot.num_dropped + slot.num_pairs) + 1;
  rows_.add({.tokens = std::span(sequence.tokens).subspan(first_token, static_cast<std::size_t>(num_pairs)),
             .num_past = slot.num_pairs,
             .block_table = block_table(sequence),
             .state_slot = sequence.slot,
             .logits = logits,
             .media = sequence.media.get(),
             .token_offset = 1 + slot.num_dropped});
  slot.num_pairs += num_pairs;
}

void MtpDrafter::add_pairs(const StepEntry& entry, int64_t num_wanted) {
  Sequence& sequence = *entry.sequence;
  Slot& slot = slot_of(sequence);
  for (int64_t i = 0; i < slot.num_put_off; ++i) hidden_rows_.push_back(static_cast<int32_t>(put_off_row(sequence.slot, i)));
  const int64_t num_new = entry.num_rows - entry.num_drafts + sequence.num_replayed;
  for (int64_t i = 0; i < num_new; ++i) hidden_rows_.push_back(static_cast<int32_t>(entry.first_row + i));
  FERRY_CHECK_EQ(slot.num_pairs + slot.num_dropped + slot.num_put_off, entry.first_token);
  add_rows(sequence, std::exchange(slot.num_put_off, 0) + num_new,
           num_wanted > 0 ? SequenceRows::Logits::kLast : SequenceRows::Logits::kNone);
  if (num_wanted == 0) return;
  drafts_[guesses_.size()].clear();
  asking_.push_back(guesses_.size());
  guesses_.push_back({&sequence, num_wanted, slot.num_pairs});
}

/// Of the last drafts, for those who want more than the `num_done` that they have.
void MtpDrafter::add_next_pairs(std::size_t num_done) {
  clear_pairs();
  std::size_t num_asking = 0;
  for (std::size_t row = 0; row < asking_.size(); ++row) {
    const std::size_t i = asking_[row];
    const Guess& guess = guesses_[i];
    if (guess.num_wanted <= static_cast<int64_t>(num_done)) continue;
    rows_.add({.tokens = std::span(drafts_[i]).last(1),
               .num_past = guess.num_past + static_cast<int64_t>(num_done) - 1,
               .block_table = block_table(*guess.sequence),
               .state_slot = guess.sequence->slot,
               .logits = SequenceRows::Logits::kLast,
               .media = guess.sequence->media.get(),
               .token_offset = 1 + slot_of(*guess.sequence).num_dropped});
    hidden_rows_.push_back(static_cast<int32_t>(row));
    asking_[num_asking++] = i;
  }
  asking_.resize(num_asking);
}

void MtpDrafter::run(ConstMatrixView hidden, const DraftContext& context) {
  num_pass_rows_ += std::ssize(hidden_rows_);
  const ConstMatrixView logits = mtp_.run({.step = rows_.input(/*delta_chunk=*/1),
                                           .hidden = hidden,
                                           .rows = hidden_rows_,
                                           .pass = static_cast<uint8_t>(num_passes_++)},
                                          context.kv_cache, context.recurrent_state, context.dispatcher);
  logits_.set(logits, mtp_.pending());
}

}  // namespace ferry
