#include "launch/warm_up.h"

#include <algorithm>
#include <cmath>

namespace ferry {

WarmUp warm_up(const WarmUpLimits& limits, const std::function<WarmUpRun()>& run) {
  WarmUp result;
  double last_rate = 0;
  while (result.num_runs == 0 ||
         (!result.is_steady && result.num_runs < limits.most_runs && result.seconds < limits.most_seconds)) {
    const WarmUpRun now = run();
    result.is_steady =
        result.num_runs > 0 && std::abs(now.rate - last_rate) <= limits.tolerance * std::max(now.rate, last_rate);
    last_rate = now.rate;
    result.seconds += now.seconds;
    ++result.num_runs;
  }
  return result;
}

}  // namespace ferry
