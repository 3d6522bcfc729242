#include "runtime/dry_steps.h"

#include <algorithm>

namespace ferry {
namespace {

/// 1, 2, 4 ... and `most`.
std::vector<int64_t> doubled_up_to(int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size < most; size *= 2) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

}  // namespace

std::vector<DryStep> dry_steps(const SchedulerOptions& options) {
  const int64_t capacity = sequence_capacity(options);
  std::vector<DryStep> steps;
  for (const int64_t num_tokens : doubled_up_to(std::min(options.prefill_chunk, capacity))) {
    for (const int64_t num_past : {int64_t{0}, capacity - num_tokens})
      steps.push_back({.num_sequences = 1, .num_tokens = num_tokens, .num_past = num_past, .form = DeltaForm::kChunk});
  }
  const int64_t share = std::min({options.token_budget / options.max_running, options.prefill_chunk, capacity});
  for (const int64_t num_past : {int64_t{0}, capacity - share})
    steps.push_back(
        {.num_sequences = options.max_running, .num_tokens = share, .num_past = num_past, .form = DeltaForm::kChunk});
  for (const int64_t num_sequences : doubled_up_to(options.max_running)) {
    for (const int64_t num_past : {int64_t{0}, capacity - 1})
      steps.push_back({.num_sequences = num_sequences, .num_tokens = 1, .num_past = num_past, .form = DeltaForm::kRecurrent});
  }
  return steps;
}

}  // namespace ferry
