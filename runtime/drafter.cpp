#include "runtime/drafter.h"

#include <algorithm>

#include "runtime/schedule/ngram_drafts.h"

namespace ferry {

int64_t useful_drafts(const StepEntry& entry, int64_t max_drafts) {
  const Sequence& sequence = *entry.sequence;
  if (!entry.samples || sequence.finish_reason != FinishReason::kNone) return 0;
  return std::min(max_drafts, sequence.request.sampling.max_tokens - sequence.num_generated() - 1);
}

NgramDrafter::NgramDrafter(int64_t max_drafts) : max_drafts_(max_drafts) {
  drafts_.reserve(static_cast<std::size_t>(max_drafts));
}

DraftWork NgramDrafter::draft(const StepPlan& plan, Scheduler& scheduler, const DraftContext&) {
  DraftWork work;
  for (const StepEntry& entry : plan.entries) {
    const int64_t num_drafts = useful_drafts(entry, max_drafts_);
    if (num_drafts == 0) continue;
    ngram_drafts(entry.sequence->tokens, num_drafts, drafts_);
    scheduler.propose(*entry.sequence, drafts_);
    work.num_sequences += drafts_.empty() ? 0 : 1;
  }
  return work;
}

}  // namespace ferry
