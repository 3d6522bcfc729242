#pragma once

#include <algorithm>
#include <utility>

#include "profiler/archive/kept_step.h"
#include "tests/support/made_capture.h"

namespace ferry::test {

/// A made decode step of three ranks, number `step`, that began at `time_ns` since 1970 and took `seconds`.
inline KeptStep make_kept_step(int64_t step, int64_t time_ns, KeptFor why = KeptFor::kSample, double seconds = 1e-3) {
  KeptStep kept{
      .why = why,
      .facts = {.step = step, .seconds = seconds, .phase = Phase::kDecode, .num_rows = 4, .num_sequences = 4, .num_keys = 40},
      .capture = make_made_capture({.num_prefill_steps = 0, .num_decode_steps = 1})};
  const auto shift = static_cast<uint64_t>(step) * 10'000'000;  // of the ticks, so that steps lie behind each other
  for (RankCapture& rank : kept.capture.ranks) {
    rank.begin += shift;
    rank.end += shift;
    for (ThreadCapture& thread : rank.threads) {
      for (SpanRecord& record : thread.records) {
        record.begin += shift;
        record.end = std::max(record.begin, record.end + shift);  // a request may have no second step
        if (record.step != kNoStep) record.step = static_cast<uint32_t>(step);
      }
    }
  }
  kept.facts.begin = kept.capture.ranks.front().begin;
  kept.facts.end = kept.capture.ranks.front().end;
  kept.capture.info.start_epoch_ns = time_ns;
  return kept;
}

}  // namespace ferry::test
