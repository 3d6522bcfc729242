#include "launch/sample.h"

#include <algorithm>

namespace ferry {

Sample summarise(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return {values.front(), n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2, values.back()};
}

}  // namespace ferry
