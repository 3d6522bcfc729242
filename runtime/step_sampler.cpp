#include "runtime/step_sampler.h"

#include <algorithm>
#include <optional>

#include "profiler/span.h"

namespace ferry {
namespace {

bool is_drawn(const StepEntry& entry) { return entry.samples && !is_greedy(entry.sequence->request.sampling); }

}  // namespace

StepSampler::StepSampler(int64_t vocab_size, int64_t max_sequences, int64_t max_drafts)
    : scratch_(vocab_size), row_(static_cast<std::size_t>(vocab_size)) {
  tokens_.reserve(static_cast<std::size_t>(max_sequences * (1 + max_drafts)));
  num_tokens_.reserve(static_cast<std::size_t>(max_sequences));
}

StepChoices StepSampler::run(const StepPlan& plan, HostLogits& logits) {
  fetch(plan, logits);
  std::optional<Span> span;  // argmax has its own
  if (const int64_t num_drawn = std::ranges::count_if(plan.entries, is_drawn); num_drawn > 0)
    span.emplace(Zone::kSample, num_drawn);
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

void StepSampler::fetch(const StepPlan& plan, HostLogits& logits) {
  int64_t row = 0;
  for (const StepEntry& entry : plan.entries) {
    for (const int64_t end = row + entry.num_logits(); row < end; ++row) {
      if (is_drawn(entry)) {
        logits.want_values(row);
      } else {
        logits.want_token(row);
      }
    }
  }
  logits.fetch();
}

TokenId StepSampler::choose(const HostLogits& logits, int64_t row, const Sequence& sequence, int64_t token_idx) {
  if (is_greedy(sequence.request.sampling)) return logits.token(row);
  const ConstMatrixView values = logits.values(row);
  visit_dtype(values.dtype, [&]<class T>() {
    std::transform(values.row<T>(0), values.row<T>(0) + values.cols, row_.begin(), [](T x) { return to_float(x); });
  });
  const std::span<const float> chosen_from = std::span(row_).first(static_cast<std::size_t>(values.cols));
  return sample(chosen_from, static_cast<int32_t>(values.cols), sequence.request.sampling, token_idx, scratch_);
}

}  // namespace ferry
