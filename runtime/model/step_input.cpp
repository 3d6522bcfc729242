#include "runtime/model/step_input.h"

#include <algorithm>
#include <cstdlib>

namespace ferry {
namespace {

/// The row nearest to the middle at which the step may be cut; 0 if there is none.
int64_t find_cut(const StepInput& input) {
  const auto num_tokens = static_cast<int64_t>(input.token_ids.size()), middle = num_tokens / 2;
  int64_t best = 0;
  const auto consider = [&](int64_t row) {
    if (std::abs(row - middle) < std::abs(best - middle)) best = row;
  };
  for (const SequenceSpan& sequence : input.sequences) {
    consider(sequence.first_row);
    for (int64_t row = input.delta_chunk; row + 2 <= sequence.num_tokens; row += input.delta_chunk)
      consider(sequence.first_row + row);
  }
  return best;
}

void take_rows(const StepInput& input, int64_t begin, int64_t end, MicroBatch& batch) {
  batch.first_row = begin;
  batch.num_tokens = end - begin;
  batch.sequences.clear();
  batch.block_tables.clear();
  batch.state_slots.clear();
  for (std::size_t s = 0; s < input.sequences.size(); ++s) {
    const SequenceSpan& whole = input.sequences[s];
    const int64_t first = std::max(begin, whole.first_row), last = std::min(end, whole.first_row + whole.num_tokens);
    if (first >= last) continue;
    batch.sequences.push_back(
        {.first_row = first - begin, .num_tokens = last - first, .num_past = whole.num_past + first - whole.first_row});
    batch.block_tables.push_back(input.block_tables[s]);
    batch.state_slots.push_back(input.state_slots[s]);
  }
}

}  // namespace

std::span<const MicroBatch> make_micro_batches(const StepInput& input, int64_t min_rows, std::array<MicroBatch, 2>& batches) {
  const auto num_tokens = static_cast<int64_t>(input.token_ids.size());
  const int64_t cut = min_rows > 0 && num_tokens >= 2 * min_rows ? find_cut(input) : 0;
  if (cut < min_rows || num_tokens - cut < min_rows || cut == 0) {
    take_rows(input, 0, num_tokens, batches[0]);
    return std::span(batches).first(1);
  }
  take_rows(input, 0, cut, batches[0]);
  take_rows(input, cut, num_tokens, batches[1]);
  return batches;
}

}  // namespace ferry
