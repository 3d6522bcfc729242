#include "launch/recording_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "launch/sample.h"

namespace ferry {
namespace {

/// How many of `count` sorted values an interval of their median may leave out at either end: the largest r such that a
/// binomial of `count` and a half is below r in 2.5 % of the cases at most.
std::size_t num_left_out(std::size_t count) {
  constexpr double kTail = 0.025;
  double below = 0, term = std::exp2(-static_cast<double>(count));
  std::size_t r = 0;
  while (r < count / 2 && below + term <= kTail) {
    below += term;
    term *= static_cast<double>(count - r) / static_cast<double>(r + 1);
    ++r;
  }
  return r == 0 ? 0 : r - 1;
}

}  // namespace

RecordingCost summarise_pairs(std::vector<double> pairs) {
  if (pairs.empty()) throw std::invalid_argument("no pairs");
  RecordingCost cost{.pairs = pairs, .median = summarise(pairs).median};
  std::ranges::sort(pairs);
  const std::size_t left_out = num_left_out(pairs.size());
  cost.low = pairs[left_out];
  cost.high = pairs[pairs.size() - 1 - left_out];
  return cost;
}

void print_recording_cost(const RecordingCost& cost) {
  std::printf("%24s recording it takes %+.2f %% (%+.2f to %+.2f, %zu pairs)\n", "", 100 * cost.median, 100 * cost.low,
              100 * cost.high, cost.pairs.size());
  std::fflush(stdout);
}

nlohmann::ordered_json recording_cost_json(const RecordingCost& cost) {
  return {{"median", cost.median}, {"low", cost.low}, {"high", cost.high}, {"pairs", cost.pairs}};
}

}  // namespace ferry
