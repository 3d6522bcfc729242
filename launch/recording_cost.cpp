#include "launch/recording_cost.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

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

/// Of each token on average, while the work runs for so long.
double seconds_each(const RecordedWork& work, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  double sum = 0;
  int64_t runs = 0;
  for (; runs == 0 || std::chrono::steady_clock::now() < end; ++runs) sum += 1 / work.rate();
  return sum / static_cast<double>(runs);
}

double measure_window(const RecordedWork& work, bool is_recorded, MeasuredWindow window) {
  if (is_recorded) work.start();
  seconds_each(work, window.settle_s);
  const double found = seconds_each(work, window.timed_s);
  if (is_recorded) work.stop();
  return found;
}

}  // namespace

MeasuredCost measure_pairs(const RecordedWork& work, int64_t num_pairs, MeasuredWindow window) {
  std::vector<double> pairs;
  for (int64_t i = 0; i < num_pairs; ++i) {
    const bool is_second = i % 2 == 0;  // the recorded one
    const double first = measure_window(work, !is_second, window), second = measure_window(work, is_second, window);
    pairs.push_back((is_second ? second / first : first / second) - 1);
  }
  return summarise_pairs(std::move(pairs));
}

MeasuredCost summarise_pairs(std::vector<double> pairs) {
  if (pairs.empty()) throw std::invalid_argument("no pairs");
  MeasuredCost cost{.pairs = pairs, .median = summarise(pairs).median};
  std::ranges::sort(pairs);
  const std::size_t left_out = num_left_out(pairs.size());
  cost.low = pairs[left_out];
  cost.high = pairs[pairs.size() - 1 - left_out];
  return cost;
}

std::string interval_text(const MeasuredCost& cost) {
  char text[96];
  std::snprintf(text, sizeof text, "%+.2f to %+.2f, %zu pairs", 100 * cost.low, 100 * cost.high, cost.pairs.size());
  if (cost.is_interval()) return text;
  return cost.pairs.size() == 1 ? "1 pair, too few for an interval" : std::string(text) + ", too few for an interval";
}

void print_recording_cost(const MeasuredCost& cost) {
  std::printf("%24s recording it takes %+.2f %% (%s)\n", "", 100 * cost.median, interval_text(cost).c_str());
  std::fflush(stdout);
}

nlohmann::ordered_json recording_cost_json(const MeasuredCost& cost) {
  return {{"median", cost.median},
          {"low", cost.low},
          {"high", cost.high},
          {"is_interval", cost.is_interval()},
          {"pairs", cost.pairs}};
}

}  // namespace ferry
