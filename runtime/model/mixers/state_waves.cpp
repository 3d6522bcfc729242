#include "runtime/model/mixers/state_waves.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace ferry {

void StateWaves::cut(const MicroBatch& batch) {
  num_waves_ = 0;
  auto save = batch.saves.begin();
  for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
    SequenceSpan rest = batch.sequences[s];
    const int64_t end_row = rest.first_row + rest.num_tokens;
    for (std::size_t idx = 0; idx == 0 || rest.num_tokens > 0; ++idx) {
      Wave& wave = this->wave(idx);
      SequenceSpan part = rest;
      if (save != batch.saves.end() && save->end_row <= end_row) {
        FERRY_CHECK(save->end_row > rest.first_row && rest.num_replayed + rest.num_held == 0 &&
                    save->slot == batch.state_slots[s])
            << "slot " << save->slot << " is saved behind row " << save->end_row << " of rows " << rest.first_row << " to "
            << end_row;
        part.num_tokens = save->end_row - rest.first_row;
        wave.saves.push_back(*save++);
      }
      wave.sequences.push_back(s);
      wave.spans.push_back(part);
      rest.first_row += part.num_tokens;
      rest.num_tokens -= part.num_tokens;
      rest.num_past += part.num_tokens;
    }
  }
  FERRY_CHECK(save == batch.saves.end()) << "a state is saved behind row " << save->end_row << ", of no sequence";
}

StateWaves::Wave& StateWaves::wave(std::size_t idx) {
  if (idx == waves_.size()) waves_.emplace_back();
  if (idx == num_waves_) {
    waves_[idx].sequences.clear();
    waves_[idx].spans.clear();
    waves_[idx].saves.clear();
    ++num_waves_;
  }
  return waves_[idx];
}

}  // namespace ferry
