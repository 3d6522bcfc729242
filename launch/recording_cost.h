#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

// What recording costs the work that is recorded: the same work with and without a capture, in turn.

namespace ferry {

/// Of how much longer the same takes while it is recorded, as shares: 0.004 is 0.4 %.
struct RecordingCost {
  std::vector<double> pairs;  // as they came
  double median = 0;
  /// Of the median, with a confidence of 95 % or more, by the sign test: nothing is assumed of how timings are spread. Of fewer
  /// than six pairs the whole range, which promises less.
  double low = 0, high = 0;
};

/// Throws std::invalid_argument for no pairs.
RecordingCost summarise_pairs(std::vector<double> pairs);

void print_recording_cost(const RecordingCost& cost);
nlohmann::ordered_json recording_cost_json(const RecordingCost& cost);

}  // namespace ferry
