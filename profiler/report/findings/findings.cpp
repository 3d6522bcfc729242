#include "profiler/report/findings/findings.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "profiler/report/findings/format.h"
#include "profiler/report/findings/rank_findings.h"
#include "profiler/report/findings/worker_findings.h"
#include "profiler/report/lost_time/lost_time.h"
#include "profiler/report/lost_time/recording_cost.h"
#include "profiler/report/lost_time/waiting.h"
#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

using Severity = Finding::Severity;

std::string quiet_text(std::size_t num_steps, std::size_t num_requests) {
  if (num_steps == 0) return "The capture holds no step: there is nothing to be found.";
  return format("Nothing stands out in %zu step%s and %zu request%s.", num_steps, num_steps == 1 ? "" : "s", num_requests,
                num_requests == 1 ? "" : "s");
}

void find_starved(const ReportInput& input, std::vector<Finding>& findings) {
  constexpr double kMinStarved = 0.05;                // of the capture
  constexpr double kMinRequests = 0.25;               // of the requests
  constexpr double kSteps = 2;                        // a request that waits for fewer steps than this came at a bad moment
  if (!input.capture.info.selection.empty()) return;  // how long nothing ran was not recorded
  const Timeline& timeline = input.timeline;
  const IntervalSet waiting = find_waiting(input);
  const int64_t waiting_ns = total(waiting), wall_ns = timeline.end_ns - timeline.begin_ns;
  if (waiting_ns == 0 || wall_ns <= 0) return;
  const int64_t starved_ns = total(intersect(subtract(find_gaps(input), find_pictures(input.timeline)), waiting));
  const double steps = static_cast<double>(timeline.steps.size());
  const double step_ns = steps > 0 ? static_cast<double>(total_step_ns(timeline)) / steps : 0;
  std::vector<double> queue_ms;
  double long_waits = 0;
  for (const RequestInfo& request : timeline.requests) {
    const std::optional<Interval> when = find_queue_time(input, request);
    if (!when) continue;
    const auto queue_ns = static_cast<double>(when->end - when->begin);
    queue_ms.push_back(queue_ns / 1e6);
    if (queue_ns > kSteps * step_ns && queue_ns > 0.05 * static_cast<double>(wall_ns)) ++long_waits;
  }
  const double starved_share = static_cast<double>(starved_ns) / static_cast<double>(wall_ns);
  const bool is_starved = starved_share >= kMinStarved;
  if (!is_starved && long_waits < kMinRequests * static_cast<double>(queue_ms.size())) return;
  const WaitReasons reasons = find_wait_reasons(input, waiting);
  std::string limits;
  if (reasons.max_running > 0) limits += format(" of at most %lld", whole(reasons.max_running));
  findings.push_back(
      {Severity::kProblem, "starved",
       format(
           "%.0f of %zu requests wait long in the queue (p50 %.1f ms, p99 %.1f ms), mostly for %s (slots %.0f %%, KV blocks "
           "%.0f %%, steps %.0f %% of that time); meanwhile %.1f sequences%s run on average, and for %.1f ms (%.0f %% of the "
           "capture) no step runs at all.",
           long_waits, queue_ms.size(), percentile(queue_ms, 0.5), percentile(queue_ms, 0.99), reasons.worst(),
           100 * static_cast<double>(reasons.slots) / static_cast<double>(waiting_ns),
           100 * static_cast<double>(reasons.kv_blocks) / static_cast<double>(waiting_ns),
           100 * static_cast<double>(reasons.steps) / static_cast<double>(waiting_ns), reasons.mean_running, limits.c_str(),
           to_us(starved_ns) / 1e3, 100 * starved_share),
       "phase"});
}

void find_lost(const ReportInput& input, std::vector<Finding>& findings) {
  for (const RankCapture& rank : input.capture.ranks) {
    if (rank.threads.empty()) {
      findings.push_back({Severity::kProblem, "missing_rank",
                          format("Rank %d handed in no records: its time is missing everywhere.", rank.rank), "run"});
    }
    for (const ThreadCapture& thread : rank.threads) {
      if (thread.num_lost == 0) continue;
      const auto lost = static_cast<double>(thread.num_lost), kept = static_cast<double>(thread.records.size());
      findings.push_back(
          {Severity::kProblem, "lost_records",
           format("Rank %d, thread %s lost %.0f records, %.1f %% of its own: every figure of that rank is too low; "
                  "capture a shorter time or a lower level.",
                  rank.rank, thread.name.c_str(), lost, 100 * lost / (lost + kept)),
           "run"});
    }
  }
}

void find_clock_trouble(const ReportInput& input, std::vector<Finding>& findings) {
  const Timeline& timeline = input.timeline;
  if (timeline.num_causality_violations == 0) return;
  findings.push_back(
      {Severity::kProblem, "clock",
       format("%lld messages arrive before they were sent, by up to %.3f us beyond what the clock bound (%.3f us) "
              "allows: comparisons between ranks cannot be trusted.",
              whole(timeline.num_causality_violations), to_us(timeline.worst_violation_ns), timeline.clock_bound_ns / 1e3),
       "transfer"});
}

void find_recording_trouble(const ReportInput& input, std::vector<Finding>& findings) {
  constexpr double kNotice = 0.01, kProblem = 0.05;
  const RecordingCost cost = find_recording_cost(input);
  if (cost.share < kNotice) return;
  const double share = cost.rank == 0 ? cost.share : 0;  // what a worker records may be hidden behind others
  findings.push_back(
      {.severity = cost.share >= kProblem ? Severity::kProblem : Severity::kNotice,
       .kind = "profiler_cost",
       .text = format("Recording itself takes %.1f %% of the time in steps (rank %d: %lld records at %.1f ns); a "
                      "lower level disturbs less.",
                      100 * cost.share, cost.rank, whole(cost.records), cost.span_cost_ns),
       .table = "run",
       .saved_ms = share * static_cast<double>(total_step_ns(input.timeline)) / 1e6,
       .saved_share = share});
}

void find_exposed(const ReportInput& input, const LostTime& lost, std::vector<Finding>& findings) {
  constexpr double kMinShare = 0.25;
  int64_t exposed_ns = 0;
  for (const StepInfo& step : input.timeline.steps)
    exposed_ns += break_down(input.activity.at(0), {step.begin_ns, step.end_ns}).exposed;
  WaitParts waits;
  for (const WaitParts& parts : lost.waits) waits.add(parts);
  const auto steps_ns = static_cast<double>(total_step_ns(input.timeline));
  const auto exposed = static_cast<double>(exposed_ns);
  if (steps_ns <= 0 || exposed < kMinShare * steps_ns) return;
  const auto percent = [&](int64_t ns) { return 100 * static_cast<double>(ns) / exposed; };
  findings.push_back(
      {Severity::kNotice, "exposed_communication",
       format("The coordinator spends %.0f %% of its steps on communication that nothing hides, %.1f us a step: %.0f %% of "
              "that while "
              "remote experts compute, %.0f %% while rows and replies are on the wire, %.0f %% while a worker does not run.",
              100 * exposed / steps_ns, exposed / 1e3 / static_cast<double>(input.timeline.steps.size()),
              percent(waits.experts), percent(waits.wire), percent(waits.not_running)),
       "phase"});
}

/// Of the coordinator's device: a worker's waits for the coordinator anyway.
void find_idle_device(const ReportInput& input, std::vector<Finding>& findings) {
  constexpr double kMinShare = 0.25;
  const Timeline& timeline = input.timeline;
  const RankCapture& coordinator = input.capture.ranks.at(0);
  if (coordinator.device.name.empty() || coordinator.device.clock.starts_with("none")) return;
  std::vector<Interval> steps, handing_over;
  for (const StepInfo& step : timeline.steps) steps.push_back({step.begin_ns, step.end_ns});
  for (const Slice& slice : timeline.slices) {
    if (slice.is_handed_over && timeline.lanes[static_cast<std::size_t>(slice.lane)].rank == coordinator.rank)
      handing_over.push_back({slice.begin_ns, slice.end_ns});
  }
  const IntervalSet idle = subtract(make_interval_set(std::move(steps)), find_device_busy(timeline, coordinator.rank));
  const auto idle_ns = static_cast<double>(total(intersect(idle, make_interval_set(std::move(handing_over)))));
  const auto steps_ns = static_cast<double>(total_step_ns(timeline));
  if (steps_ns <= 0 || idle_ns < kMinShare * steps_ns) return;
  findings.push_back({Severity::kNotice, "idle_device",
                      format("The coordinator's GPU has nothing to do for %.0f %% of its steps, %.1f us a step, while the host "
                             "hands work over to it. The first steps of a run also compile shaders, unless a server did at its "
                             "start; later ones have too few rows for such a device.",
                             100 * idle_ns / steps_ns, idle_ns / 1e3 / static_cast<double>(timeline.steps.size())),
                      "device"});
}

}  // namespace

const char* severity_name(Finding::Severity severity) {
  switch (severity) {
    case Finding::Severity::kProblem: return "problem";
    case Finding::Severity::kNotice: return "notice";
    case Finding::Severity::kInfo: return "info";
  }
  return "";
}

/// Whether it says that the capture itself cannot be relied on.
bool casts_doubt(const Finding& finding) {
  return finding.kind == "clock" || finding.kind == "lost_records" || finding.kind == "missing_rank";
}

void sort_findings(std::vector<Finding>& findings) {
  const auto weight = [](const Finding& finding) {
    double saved_ms = finding.saved_ms;
    for (const Action& action : finding.actions) saved_ms = std::max(saved_ms, action.saved_ms);
    return std::tuple(casts_doubt(finding), saved_ms, finding.severity);
  };
  std::ranges::stable_sort(findings, [&](const Finding& x, const Finding& y) { return weight(x) > weight(y); });
}

std::vector<Finding> find_problems(const ReportInput& input) {
  std::vector<Finding> findings;
  find_lost(input, findings);
  find_clock_trouble(input, findings);
  const LostTime lost = find_lost_time(input);
  WorkerChanges changes = find_worker_changes(input);
  for (Finding& finding : find_costly_ranks(input, lost, changes.counted)) findings.push_back(std::move(finding));
  for (Finding& finding : changes.findings) findings.push_back(std::move(finding));
  find_starved(input, findings);
  find_recording_trouble(input, findings);
  find_exposed(input, lost, findings);
  find_idle_device(input, findings);
  sort_findings(findings);
  if (findings.empty())
    findings.push_back(
        {Severity::kInfo, "none", quiet_text(input.timeline.steps.size(), input.timeline.requests.size()), "run"});
  return findings;
}

}  // namespace ferry
