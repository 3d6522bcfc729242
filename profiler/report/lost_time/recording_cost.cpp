#include "profiler/report/lost_time/recording_cost.h"

#include "profiler/report/timeline/step_slices.h"

namespace ferry {

RecordingCost find_recording_cost(const ReportInput& input) {
  RecordingCost worst;
  const auto steps_ns = static_cast<double>(total_step_ns(input.timeline));
  if (steps_ns <= 0) return worst;
  for (const RankCapture& rank : input.capture.ranks) {
    for (const ThreadCapture& thread : rank.threads) {
      const auto records = static_cast<int64_t>(thread.records.size());
      const double share = static_cast<double>(records) * rank.span_cost_ns / steps_ns;
      if (share > worst.share) worst = {share, rank.rank, records, rank.span_cost_ns};
    }
  }
  return worst;
}

}  // namespace ferry
