#pragma once

#include <cstdint>
#include <vector>

#include "profiler/report/report_input.h"

namespace ferry {

/// How a layer's rows spread over the ranks that hold experts.
struct RankLoad {
  std::vector<int32_t> ranks;   // that hold experts, ascending
  std::vector<int64_t> tokens;  // [ranks.size()] of one layer
  int64_t total = 0, largest = 0;

  /// Mean over ranks / max over ranks: 1 is perfect balance. 1 if there are no tokens.
  double balancedness() const;
};
RankLoad find_rank_load(const CaptureInfo& info, std::size_t layer);

/// An expert that gets far more than its share of a layer, and what that costs.
struct HotExpert {
  int32_t layer = 0, expert = 0, rank = 0;
  int64_t tokens = 0;
  double layer_share = 0;          // of the layer's rows
  double over_mean = 0;            // times the mean expert's
  double rank_over_mean = 0;       // its rank's rows in the layer over the mean rank's
  double grouped_us = 0;           // a step: GroupedMatmul of that rank in that layer
  double coordinator_wait_us = 0;  // a step: the coordinator waits for that rank's reply
  double others_wait_us = 0;       // a step: sum over the other workers that answered before it, beyond the clock bound
  double bound_us = 0;
};

/// The `count` hottest of all (layer, expert), hottest first. Empty if the capture has no expert counts.
std::vector<HotExpert> find_hot_experts(const ReportInput& input, std::size_t count);

}  // namespace ferry
