#include "runtime/step_sampler.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "profiler/span.h"

namespace ferry {

StepSampler::StepSampler(ThreadPool& pool, int64_t vocab_size, int64_t max_sequences, int64_t max_drafts) : pool_(pool) {
  const int64_t num_drawers = std::min<int64_t>({pool.num_threads(), kMaxDrawers, max_sequences});
  for (int64_t i = 0; i < num_drawers; ++i)
    drawers_.push_back({SamplerScratch(vocab_size), std::vector<float>(static_cast<std::size_t>(vocab_size))});
  choices_.reserve(static_cast<std::size_t>(max_sequences));
  num_tokens_.reserve(static_cast<std::size_t>(max_sequences));
  tokens_.reserve(static_cast<std::size_t>(max_sequences * (1 + max_drafts)));
}

StepChoices StepSampler::run(const StepPlan& plan, HostLogits& logits) {
  fetch(plan, logits);
  choose_all(logits);
  close_gaps();
  return {.tokens = tokens_, .num_tokens = num_tokens_};
}

/// Gets the rows' tokens, or what draws need.
void StepSampler::fetch(const StepPlan& plan, HostLogits& logits) {
  choices_.clear();
  num_drawn_ = 0;
  int64_t row = 0;
  for (const StepEntry& entry : plan.entries) {
    if (!entry.samples) continue;
    const bool is_drawn = !is_greedy(entry.sequence->request.sampling);
    choices_.push_back({.entry = &entry, .first_row = row, .is_drawn = is_drawn});
    num_drawn_ += is_drawn ? 1 : 0;
    for (const int64_t end = row + entry.num_logits(); row < end; ++row) {
      if (is_drawn) {
        logits.want_values(row);
      } else {
        logits.want_token(row);
      }
    }
  }
  logits.fetch();
  tokens_.resize(static_cast<std::size_t>(row));
  num_tokens_.resize(choices_.size());
}

void StepSampler::choose_all(const HostLogits& logits) {
  std::optional<Span> span;  // argmax has its own
  if (num_drawn_ > 0) span.emplace(Zone::kSample, num_drawn_);
  std::atomic<std::size_t> next = 0;
  const auto choose_some = [&](int64_t drawer_idx, int) {
    for (std::size_t i = next++; i < choices_.size(); i = next++)
      choose(logits, i, drawers_[static_cast<std::size_t>(drawer_idx)]);
  };
  const int64_t num_threads = std::min(num_drawn_, std::ssize(drawers_));
  if (num_threads <= 1) return choose_some(0, 0);
  pool_.parallel_for(num_threads, choose_some);
}

/// The entry's tokens: as long as they are the drafts.
void StepSampler::choose(const HostLogits& logits, std::size_t choice_idx, Drawer& drawer) {
  const auto& [entry, first_row, is_drawn] = choices_[choice_idx];
  const Sequence& sequence = *entry->sequence;
  int64_t num_chosen = 0;
  for (bool goes_on = true; goes_on; ++num_chosen) {
    const int64_t row = first_row + num_chosen;
    const TokenId token =
        is_drawn ? draw(logits.values(row), sequence.request.sampling, sequence.num_generated() + num_chosen, drawer)
                 : logits.token(row);
    tokens_[static_cast<std::size_t>(row)] = token;
    goes_on = num_chosen < entry->num_drafts && token == sequence.drafts[static_cast<std::size_t>(num_chosen)];
  }
  num_tokens_[choice_idx] = static_cast<int32_t>(num_chosen);
}

TokenId StepSampler::draw(ConstMatrixView values, const SamplingParams& params, int64_t token_idx, Drawer& drawer) {
  visit_dtype(values.dtype, [&]<class T>() {
    std::transform(values.row<T>(0), values.row<T>(0) + values.cols, drawer.row.begin(), [](T x) { return to_float(x); });
  });
  const std::span<const float> row = std::span(drawer.row).first(static_cast<std::size_t>(values.cols));
  return sample(row, static_cast<int32_t>(values.cols), params, token_idx, drawer.scratch);
}

/// Rows behind a wrong draft gave no token.
void StepSampler::close_gaps() {
  std::size_t num_tokens = 0;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    for (int64_t k = 0; k < num_tokens_[i]; ++k)
      tokens_[num_tokens++] = tokens_[static_cast<std::size_t>(choices_[i].first_row + k)];
  }
  tokens_.resize(num_tokens);
}

}  // namespace ferry
