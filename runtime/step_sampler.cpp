#include "runtime/step_sampler.h"

#include "profiler/span.h"

namespace ferry {

StepSampler::StepSampler(int64_t vocab_size, int32_t vocab_size_effective, int64_t max_sequences, int64_t max_drafts)
    : vocab_size_effective_(vocab_size_effective), scratch_(vocab_size), row_(static_cast<std::size_t>(vocab_size)) {
  tokens_.reserve(static_cast<std::size_t>(max_sequences * (1 + max_drafts)));
  num_tokens_.reserve(static_cast<std::size_t>(max_sequences));
}

StepChoices StepSampler::run(const StepPlan& plan, ConstMatrixView logits) {
  const Span span(Zone::kSample, plan.num_samples);
  tokens_.clear();
  num_tokens_.clear();
  int64_t first_row = 0;
  for (const StepEntry& entry : plan.entries) {
    if (!entry.samples) continue;
    const Sequence& sequence = *entry.sequence;
    const int64_t token_idx = sequence.num_generated();
    int64_t num_chosen = 0;
    for (bool goes_on = true; goes_on; ++num_chosen) {
      const TokenId token = choose(logits, first_row + num_chosen, sequence, token_idx + num_chosen);
      tokens_.push_back(token);
      goes_on = num_chosen < entry.num_drafts && token == sequence.drafts[static_cast<std::size_t>(num_chosen)];
    }
    num_tokens_.push_back(static_cast<int32_t>(num_chosen));
    first_row += entry.num_logits();
  }
  return {.tokens = tokens_, .num_tokens = num_tokens_};
}

TokenId StepSampler::choose(ConstMatrixView logits, int64_t row, const Sequence& sequence, int64_t token_idx) {
  visit_dtype(logits.dtype, [&]<class T>() {
    const T* values = logits.row<T>(row);
    for (std::size_t i = 0; i < row_.size(); ++i) row_[i] = to_float(values[i]);
  });
  return sample(row_, vocab_size_effective_, sequence.request.sampling, token_idx, scratch_);
}

}  // namespace ferry
