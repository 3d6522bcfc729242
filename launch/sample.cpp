#include "launch/sample.h"

#include <algorithm>
#include <utility>

namespace ferry {

Sample summarise(std::vector<double> values) {
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  return {.min = sorted.front(),
          .median = n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2,
          .max = sorted.back(),
          .values = std::move(values)};
}

}  // namespace ferry
