#include "profiler/report/lost_time/recording_cost.h"

#include <algorithm>
#include <vector>

#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

/// Different ticks at which spans of the thread begin or end. The clock was read as often, or less: products that are
/// multiplied together share the time between two readings.
std::size_t count_moments(const ThreadCapture& thread) {
  std::vector<uint64_t> moments;
  moments.reserve(2 * thread.records.size());
  for (const SpanRecord& record : thread.records) moments.insert(moments.end(), {record.begin, record.end});
  std::ranges::sort(moments);
  return static_cast<std::size_t>(std::unique(moments.begin(), moments.end()) - moments.begin());
}

/// Nanoseconds that recording took of the thread at most. What a chained span does not cost is a reading of the clock.
double cost_of(const RankCapture& rank, const ThreadCapture& thread) {
  const auto records = static_cast<double>(thread.records.size());
  if (rank.chained_span_cost_ns <= 0) return records * rank.span_cost_ns;
  const double reading = std::clamp(rank.span_cost_ns - rank.chained_span_cost_ns, 0.0, rank.span_cost_ns / 2);
  return static_cast<double>(count_moments(thread)) * reading + records * (rank.span_cost_ns - 2 * reading);
}

}  // namespace

RecordingCost find_recording_cost(const ReportInput& input) {
  RecordingCost worst;
  const auto steps_ns = static_cast<double>(total_step_ns(input.timeline));
  if (steps_ns <= 0) return worst;
  for (const RankCapture& rank : input.capture.ranks) {
    for (const ThreadCapture& thread : rank.threads) {
      const double cost_ns = cost_of(rank, thread), share = cost_ns / steps_ns;
      if (share <= worst.share) continue;
      const auto records = static_cast<int64_t>(thread.records.size());
      worst = {share, rank.rank, records, cost_ns / static_cast<double>(records)};
    }
  }
  return worst;
}

}  // namespace ferry
