#include "runtime/trace/step_marks.h"

#include <algorithm>

namespace ferry {

void StepMarks::note(int64_t step, uint64_t ticks) {
  const Mark& last = marks_[(next_ + kMost - 1) % kMost];
  if (last.step == step) return;
  marks_[next_] = {.step = step, .ticks = ticks};
  next_ = (next_ + 1) % kMost;
}

uint64_t StepMarks::begin_of(int64_t step) const {
  uint64_t begin = UINT64_MAX;
  for (const Mark& mark : marks_) {
    if (mark.step >= step) begin = std::min(begin, mark.ticks);
  }
  return begin;
}

void keep_steps_from(int64_t first, RankCapture& capture) {
  const auto is_of_steps = [first](const SpanRecord& record) { return record.step != kNoStep && record.step >= first; };
  uint64_t begin = UINT64_MAX;
  for (const ThreadCapture& thread : capture.threads) {
    for (const SpanRecord& record : thread.records) {
      if (is_of_steps(record)) begin = std::min(begin, record.begin);
    }
  }
  for (ThreadCapture& thread : capture.threads) {
    std::erase_if(thread.records, [&](const SpanRecord& record) {
      return !is_of_steps(record) && (record.step != kNoStep || record.end < begin);
    });
  }
}

}  // namespace ferry
