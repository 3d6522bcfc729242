#pragma once

#include <cstdint>
#include <vector>

#include "profiler/report/lost_time/lost_time.h"

namespace ferry {

/// How a layer's rows spread over the ranks that hold experts.
struct RankLoad {
  std::vector<int32_t> ranks;   // that hold experts of any layer, or answered rows; ascending
  std::vector<int64_t> tokens;  // [ranks.size()] of one layer
  int64_t total = 0, largest = 0;

  /// Mean over ranks / max over ranks: 1 is perfect balance. 1 if there are no tokens.
  double balancedness() const;
};
/// [num_layers]. What ranks answered, where that was recorded; else the rows of each expert, divided by those that held it when
/// the capture began.
std::vector<RankLoad> find_rank_loads(const ReportInput& input);

/// Those that hold an expert of a layer, as far as the capture tells.
std::vector<int32_t> find_holders(const CaptureInfo& info, std::size_t layer, std::size_t expert);

/// An expert that gets far more than its share of a layer, and what that costs.
struct HotExpert {
  int32_t layer = 0, expert = 0;
  int32_t rank = 0;  // that holds it; of several the one with the most rows there
  int64_t tokens = 0;
  double layer_share = 0;     // of the layer's rows
  double over_mean = 0;       // times the mean expert's
  double rank_over_mean = 0;  // its rank's rows in the layer over the mean rank's
  double extra_share = 0;     // its rows above the mean expert's over its rank's above the mean rank's; 0 if the rank has none
  double grouped_us = 0;      // a step: GroupedMatmul of that rank in that layer
  double coordinator_wait_us = 0;  // a step: the coordinator waits for that rank's reply
  double saved_us = 0;             // a step: it would be shorter by so much if that rank had no more rows there than the others
};

/// The `count` hottest of all (layer, expert), hottest first. Empty if the capture has no expert counts.
std::vector<HotExpert> find_hot_experts(const ReportInput& input, const LostTime& lost, std::size_t count);

}  // namespace ferry
