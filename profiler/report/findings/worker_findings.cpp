#include "profiler/report/findings/worker_findings.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "profiler/report/findings/format.h"
#include "profiler/report/statistics.h"
#include "runtime/base/worker_state.h"

namespace ferry {
namespace {

double step_ms(const StepInfo& step) { return static_cast<double>(step.end_ns - step.begin_ns) / 1e6; }

double median_ms(const Timeline& timeline, Phase phase) {
  std::vector<double> lengths;
  for (const StepInfo& step : timeline.steps) {
    if (step.phase == phase) lengths.push_back(step_ms(step));
  }
  return median(std::move(lengths));
}

/// "; 40 rows were answered by other workers and 8 computed by the coordinator", of the whole capture.
std::string covered_text(const Timeline& timeline) {
  int64_t by_workers = 0, by_coordinator = 0;
  for (const CounterSample& sample : timeline.counters) {
    if (sample.zone == Zone::kCoveredRows) (sample.b == 0 ? by_coordinator : by_workers) += sample.value;
  }
  return format("%lld rows of the capture were asked of other workers instead and %lld computed by the coordinator",
                whole(by_workers), whole(by_coordinator));
}

/// What changed of one worker.
struct Changes {
  WorkerState worst = WorkerState::kVacant;
  std::set<const StepInfo*> steps;  // in which it did
};

Finding describe_changes(const Timeline& timeline, int32_t rank, const Changes& changes) {
  const bool is_lost = changes.worst == WorkerState::kMasked;
  std::string text =
      format("Rank %d %s; %s.", rank, is_lost ? "was lost" : "was late and suspected", covered_text(timeline).c_str());
  double longest = 0, usual = 0, lost = 0;
  for (const StepInfo* step : changes.steps) {
    const double median = median_ms(timeline, step->phase);
    lost += std::max(0.0, step_ms(*step) - median);
    if (step_ms(*step) <= longest) continue;
    longest = step_ms(*step);
    usual = median;
  }
  if (!changes.steps.empty())
    text += format(
        " Of the %zu steps in which it came to stand otherwise the longest took %.2f ms, where the median of its "
        "phase is %.2f ms: %.2f ms were lost in all of them.",
        changes.steps.size(), longest, usual, lost);
  return {.severity = is_lost ? Finding::Severity::kProblem : Finding::Severity::kNotice,
          .kind = is_lost ? "worker_lost" : "worker_late",
          .text = std::move(text),
          .table = "step"};
}

}  // namespace

std::vector<Finding> find_worker_changes(const ReportInput& input) {
  const Timeline& timeline = input.timeline;
  std::map<int32_t, Changes> by_rank;
  for (const Slice& slice : timeline.slices) {
    if (slice.zone != Zone::kWorkerChange) continue;
    const auto state = static_cast<WorkerState>(slice.a);
    if (state > WorkerState::kMasked) continue;  // who comes or goes delays nobody
    Changes& changes = by_rank[static_cast<int32_t>(slice.b)];
    changes.worst = std::max(changes.worst, state);
    if (const StepInfo* step = timeline.step_at(slice.begin_ns)) changes.steps.insert(step);
  }
  std::vector<Finding> findings;
  for (const auto& [rank, changes] : by_rank) {
    if (changes.worst >= WorkerState::kSuspect) findings.push_back(describe_changes(timeline, rank, changes));
  }
  return findings;
}

}  // namespace ferry
