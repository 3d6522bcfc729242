#pragma once

#include <cstdint>
#include <functional>

namespace ferry {

/// How long a benchmark runs before it measures.
struct WarmUpLimits {
  double tolerance = 0.03;  // two runs in a row whose rates differ by at most this share of the faster one are steady
  int64_t most_runs = 10;
  double most_seconds = 5;  // after which no further run begins
};

/// One run, whose work is the same each time.
struct WarmUpRun {
  double rate = 0;     // tokens a second
  double seconds = 0;  // that it took, what comes before it included
};

struct WarmUp {
  int64_t num_runs = 0;
  double seconds = 0;
  bool is_steady = false;
};

/// Runs until the figures are steady or the limits are reached; at least once.
WarmUp warm_up(const WarmUpLimits& limits, const std::function<WarmUpRun()>& run);

}  // namespace ferry
