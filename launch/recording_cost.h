#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

// What recording costs the work that is recorded: the same work with and without a capture, in turn.

namespace ferry {

/// Of how much longer the same takes while it is recorded, as shares: 0.004 is 0.4 %.
struct MeasuredCost {
  std::vector<double> pairs;  // as they came
  double median = 0;
  /// Of the median, with a confidence of 95 % or more, by the sign test: nothing is assumed of how timings are spread. Of fewer
  /// than six pairs the whole range, which promises less.
  double low = 0, high = 0;

  bool is_interval() const { return pairs.size() >= 6; }
};

/// Throws std::invalid_argument for no pairs.
MeasuredCost summarise_pairs(std::vector<double> pairs);

struct RecordedWork {
  std::function<void()> start, stop;  // to record
  std::function<double()> rate;       // of one run of the work: tokens per second
};
/// Seconds in which the work runs, once at least: before it is timed, and while it is.
struct MeasuredWindow {
  double settle_s = 0.1, timed_s = 0.4;
};
/// Every pair is a window in which the work is recorded and one in which it is not; which of them comes first changes from pair
/// to pair, so that a machine that slows down or warms up makes no difference. Starting and stopping are not timed. Throws what
/// `work` throws, and std::invalid_argument for no pairs.
MeasuredCost measure_pairs(const RecordedWork& work, int64_t num_pairs, MeasuredWindow window = {});

/// "-0.42 to +1.30, 20 pairs", percent.
std::string interval_text(const MeasuredCost& cost);
void print_recording_cost(const MeasuredCost& cost);
nlohmann::ordered_json recording_cost_json(const MeasuredCost& cost);

}  // namespace ferry
