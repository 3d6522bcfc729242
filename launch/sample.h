#pragma once

#include <vector>

namespace ferry {

/// What repeated measurements gave.
struct Sample {
  double min = 0, median = 0, max = 0;
  std::vector<double> values;  // as they came
};

/// At least one value.
Sample summarise(std::vector<double> values);

}  // namespace ferry
