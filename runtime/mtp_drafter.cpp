#include "runtime/mtp_drafter.h"

#include "profiler/span.h"
#include "runtime/base/check.h"

namespace ferry {

MtpDrafter::MtpDrafter(const ModelConfig& config, const TrunkWeights& weights, Trunk& trunk, DType dtype,
                       int32_t vocab_size_effective, int64_t max_drafts)
    : mtp_(config, weights, trunk, dtype),
      vocab_size_effective_(vocab_size_effective),
      max_drafts_(max_drafts),
      drafts_(static_cast<std::size_t>(trunk.limits().max_sequences)),
      scratch_(config.vocab_size),
      row_(static_cast<std::size_t>(config.vocab_size)) {
  for (std::vector<TokenId>& drafts : drafts_) drafts.reserve(static_cast<std::size_t>(max_drafts));
}

void MtpDrafter::keep_step(const StepPlan& plan) { kept_ = mtp_.take_hidden(plan.num_rows); }

void MtpDrafter::draft(const StepPlan& plan, Scheduler& scheduler, const DraftContext& context) {
  add_certain_pairs(plan);
  if (hidden_rows_.empty()) return;
  const Span span(Zone::kDraft, static_cast<int64_t>(hidden_rows_.size()), static_cast<int64_t>(guesses_.size()));
  run(kept_, context);
  for (std::size_t num_done = 0; !asking_.empty(); run(mtp_.hidden(), context)) {
    for (std::size_t row = 0; row < asking_.size(); ++row)
      drafts_[asking_[row]].push_back(best_token(logits_, static_cast<int64_t>(row)));
    add_next_pairs(++num_done);
    if (asking_.empty()) break;
  }
  for (std::size_t i = 0; i < guesses_.size(); ++i) scheduler.propose(*guesses_[i].sequence, drafts_[i]);
}

/// Of every row that turned out right: a prompt's, the last token's, and those of right drafts.
void MtpDrafter::add_certain_pairs(const StepPlan& plan) {
  rows_.clear();
  hidden_rows_.clear();
  guesses_.clear();
  asking_.clear();
  for (const StepEntry& entry : plan.entries) {
    Sequence& sequence = *entry.sequence;
    if (sequence.finish_reason != FinishReason::kNone) continue;
    const int64_t num_pairs = entry.num_rows - entry.num_drafts + sequence.num_replayed;
    const int64_t num_wanted = useful_drafts(entry, max_drafts_);
    using Logits = SequenceRows::Logits;
    rows_.add({.tokens = std::span(sequence.tokens)
                             .subspan(static_cast<std::size_t>(entry.first_token) + 1, static_cast<std::size_t>(num_pairs)),
               .num_past = entry.first_token,
               .block_table = sequence.blocks.data(),
               .state_slot = sequence.slot,
               .logits = num_wanted > 0 ? Logits::kLast : Logits::kNone});
    for (int64_t i = 0; i < num_pairs; ++i) hidden_rows_.push_back(static_cast<int32_t>(entry.first_row + i));
    if (num_wanted == 0) continue;
    drafts_[guesses_.size()].clear();
    asking_.push_back(guesses_.size());
    guesses_.push_back({&sequence, num_wanted, entry.first_token + num_pairs});
  }
}

/// Of the last drafts, for those who want more than the `num_done` that they have.
void MtpDrafter::add_next_pairs(std::size_t num_done) {
  rows_.clear();
  hidden_rows_.clear();
  std::size_t num_asking = 0;
  for (std::size_t row = 0; row < asking_.size(); ++row) {
    const std::size_t i = asking_[row];
    const Guess& guess = guesses_[i];
    if (guess.num_wanted <= static_cast<int64_t>(num_done)) continue;
    rows_.add({.tokens = std::span(drafts_[i]).last(1),
               .num_past = guess.num_past + static_cast<int64_t>(num_done) - 1,
               .block_table = guess.sequence->blocks.data(),
               .state_slot = guess.sequence->slot,
               .logits = SequenceRows::Logits::kLast});
    hidden_rows_.push_back(static_cast<int32_t>(row));
    asking_[num_asking++] = i;
  }
  asking_.resize(num_asking);
}

void MtpDrafter::run(ConstMatrixView hidden, const DraftContext& context) {
  context.dispatcher.begin_step(context.next_step++);
  logits_ = mtp_.run({.step = rows_.input(/*delta_chunk=*/1), .hidden = hidden, .rows = hidden_rows_}, context.kv_cache,
                     context.recurrent_state, context.dispatcher);
}

TokenId MtpDrafter::best_token(ConstMatrixView logits, int64_t row) {
  visit_dtype(logits.dtype, [&]<class T>() {
    const T* values = logits.row<T>(row);
    for (std::size_t i = 0; i < row_.size(); ++i) row_[i] = to_float(values[i]);
  });
  const TokenId best = sample(row_, vocab_size_effective_, SamplingParams{}, 0, scratch_);
  return best == kNoToken ? 0 : best;  // any will do: a trunk whose logits are no numbers ends the sequence itself
}

}  // namespace ferry
