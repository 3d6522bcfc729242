#pragma once

#include "profiler/capture.h"
#include "tests/support/small_capture.h"

namespace ferry::test {

/// Two ranks whose stacks were sampled by the millisecond: main > step > (experts 3 ms | attention 1 ms) in a decode of rank 0,
/// main > step 2 ms in its prefill, main 1 ms in no step; of rank 1 a function that calls itself, and four samples lost.
inline Capture sampled_stacks() {
  constexpr uint64_t kMs = 1'000'000;
  SmallCapture small(2, 100 * kMs);
  small.step(1, Phase::kPrefill, 10 * kMs, 20 * kMs, 64, 1);
  small.step(2, Phase::kDecode, 30 * kMs, 40 * kMs, 1, 1);
  small.capture.info.model.name = "small";
  const auto sample = [](uint64_t at_ms, uint32_t stack, uint16_t periods) {
    return StackSample{.ticks = at_ms * kMs, .stack = stack, .tid = 100, .periods = periods};
  };
  small.capture.ranks[0].stacks = {
      .period_ns = kMs,
      .frames = {{"main", "ferry"}, {"step(int)", "ferry"}, {"experts; all", "ferry"}, {"attention", "libattention.so"}},
      .stacks = {{2, 1, 0}, {3, 1, 0}, {1, 0}, {0}},
      .samples = {sample(5, 3, 1), sample(12, 2, 2), sample(31, 0, 1), sample(33, 1, 1), sample(35, 0, 2)}};
  small.capture.ranks[1].stacks = {
      .period_ns = kMs, .frames = {{"again", "ferry"}}, .stacks = {{0, 0, 0}}, .samples = {sample(32, 0, 1)}, .num_lost = 4};
  return small.capture;
}

}  // namespace ferry::test
