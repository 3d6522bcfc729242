#include "runtime/merge_trial.h"

#include <algorithm>

namespace ferry {

void MergeTrial::note_step(int source, int64_t step, int64_t num_tokens, Deadline now) {
  ++steps_[source];
  if (source == steps_.begin()->first) {
    if (step / kBlock != block_) begin_block(step / kBlock, step, now);
    if (!is_counting_ && step % kBlock >= kSettle) {
      is_counting_ = true;
      counted_since_ = now;
      tokens_ = 0;
    }
  }
  tokens_ += static_cast<double>(num_tokens);
}

void MergeTrial::forget(int source) {
  steps_.erase(source);
  is_trying_ = false;
  block_ = -1;
}

/// Several sources, each with its share of the steps.
bool MergeTrial::all_were_there() const {
  return steps_.size() > 1 && std::ranges::all_of(steps_, [](const auto& entry) { return entry.second >= kBlock / 4; });
}

void MergeTrial::begin_block(int64_t block, int64_t step, Deadline now) {
  const bool is_whole = block == block_ + 1 && is_counting_ && all_were_there();
  if (is_trying_ && !is_whole) is_trying_ = false;
  if (is_trying_) {
    Count& way = ways_[is_on_in(block_) ? 1 : 0];
    way.tokens += tokens_;
    way.seconds += std::chrono::duration<double>(now - counted_since_).count();
    if (++blocks_tried_ == kTrialBlocks) decide(step);
  }
  if (!is_trying_ && is_whole && block % kTrialBlocks == 0 && step >= next_trial_) {
    is_trying_ = true;
    blocks_tried_ = 0;
    ways_ = {};
  }
  block_ = block;
  is_counting_ = false;
  for (auto& [source, count] : steps_) count = 0;
}

void MergeTrial::decide(int64_t step) {
  const bool is_better = ways_[1].rate() >= ways_[0].rate();
  stay_ = is_better == is_better_ ? std::min(2 * stay_, kMostStay) : kLeastStay;
  is_better_ = is_better;
  is_trying_ = false;
  next_trial_ = step + stay_;
}

}  // namespace ferry
