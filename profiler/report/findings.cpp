#include "profiler/report/findings.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "profiler/report/exchanges.h"
#include "profiler/report/expert_load.h"
#include "profiler/report/recording_cost.h"
#include "profiler/report/statistics.h"
#include "profiler/report/step_slices.h"
#include "profiler/report/waiting.h"

namespace ferry {
namespace {

using Severity = Finding::Severity;

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  char text[640];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

long long whole(int64_t value) { return value; }

/// What a late rank spends its time on, and whether its rows account for that.
std::string explain_lateness(const StragglerTally& tally, TraceLevel level) {
  constexpr double kUneven = 1.3;  // times the others' rows
  const std::size_t cause = tally.cause();
  const double excess_us = to_us(tally.excess[cause]) / static_cast<double>(tally.votes);
  if (cause == kLateStart)
    return format("its rows reach it %.1f us a layer after the others' (a slow link, or the rank does not run all the time)",
                  excess_us);
  if (level < TraceLevel::kOperators) return format("it works %.1f us a layer longer", excess_us);
  const std::string where = format("most of it is %s, %.1f us a layer above the others' median", cause_name(cause), excess_us);
  if (tally.rows <= 0 || tally.other_rows <= 0) return where;
  const double ratio = tally.rows / tally.other_rows;
  return where + format(ratio >= kUneven ? "; it has %.2f times their rows, so the load is uneven"
                                         : "; it has %.2f times their rows, so the rank itself is slow",
                        ratio);
}

void find_stragglers(const ReportInput& input, std::vector<Finding>& findings) {
  constexpr double kMinVotes = 0.1;       // of the collectives: less is no habit
  constexpr double kOverRunnerUp = 3;     // times the lateness of the next rank: otherwise they take turns
  constexpr double kProblemShare = 0.05;  // of the time in steps
  const std::vector<StragglerTally> tallies = tally_stragglers(input);
  for (const StragglerTally& tally : tallies) {
    int64_t runner_up_ns = 0;
    for (const StragglerTally& other : tallies) {
      if (other.rank != tally.rank) runner_up_ns = std::max(runner_up_ns, other.late_ns);
    }
    const auto votes = static_cast<double>(tally.votes), all = static_cast<double>(tally.collectives);
    const auto late_ns = static_cast<double>(tally.late_ns);
    const auto usual_ns = static_cast<double>(tally.late_ns - tally.max_late_ns);  // one long stall is no habit either
    if (tally.votes == 0 || votes < kMinVotes * all || usual_ns < kOverRunnerUp * static_cast<double>(runner_up_ns)) continue;
    const double step_share = late_ns / static_cast<double>(std::max<int64_t>(total_step_ns(input.timeline), 1));
    const std::string why = explain_lateness(tally, input.capture.info.level);
    const std::string& host = input.capture.ranks[static_cast<std::size_t>(tally.rank)].host;
    findings.push_back(
        {step_share >= kProblemShare ? Severity::kProblem : Severity::kNotice, "straggler",
         format("Rank %d (%s) answers last in %.0f %% of the layers, on average %.1f us after the others (%.0f %% of the "
                "exchange, "
                "clock bound %.3f us); %s; the coordinator waits %.1f us a step for it.",
                tally.rank, host.c_str(), 100 * votes / all, late_ns / 1e3 / votes,
                100 * late_ns / static_cast<double>(std::max<int64_t>(tally.elapsed_ns, 1)), tally.bound_ns / 1e3, why.c_str(),
                to_us(tally.waited_ns) / static_cast<double>(std::max<int64_t>(tally.steps, 1))),
         "straggler"});
  }
}

/// Whether the count cannot be chance and is far above the layer's mean.
bool is_hot(const HotExpert& expert, const ModelFacts& model, std::size_t num_experts) {
  constexpr double kOverMean = 3, kSigmas = 6;
  const auto tokens = static_cast<double>(expert.tokens);
  const double mean_tokens = tokens / expert.over_mean;
  // One expert sees a token once: with few experts the most that is possible is num_experts / top_k times the mean.
  const double possible = model.top_k > 0 ? static_cast<double>(num_experts) / static_cast<double>(model.top_k) : 1e9;
  const double threshold = std::min(kOverMean, 0.75 * possible);
  return threshold > 1.2 && expert.over_mean >= threshold && tokens - mean_tokens >= kSigmas * std::sqrt(mean_tokens);
}

void find_hot(const ReportInput& input, std::vector<Finding>& findings) {
  constexpr std::size_t kCandidates = 10, kNamed = 3;
  constexpr double kRankOverMean = 1.2;
  const CaptureInfo& info = input.capture.info;
  std::vector<HotExpert> hot = find_hot_experts(input, kCandidates);
  std::erase_if(hot, [&](const HotExpert& e) { return !is_hot(e, info.model, info.expert_rank.size()); });
  const bool has_peers = input.capture.ranks.size() > 2;
  for (std::size_t i = 0; i < std::min(kNamed, hot.size()); ++i) {
    const HotExpert& e = hot[i];
    std::string text = format("Expert %d of layer %d (rank %d) takes %.1f %% of the layer's rows, %.1f times the mean",
                              e.expert, e.layer, e.rank, 100 * e.layer_share, e.over_mean);
    if (has_peers)
      text += format(
          "; its rank has %.2f times the mean rank's rows there, and the other workers wait %.1f us a step for it "
          "(clock bound %.3f us)",
          e.rank_over_mean, e.others_wait_us, e.bound_us);
    if (e.grouped_us > 0) text += format("; its rank's GroupedMatmul takes %.1f us a step in that layer", e.grouped_us);
    const bool skews_rank = has_peers && e.rank_over_mean >= kRankOverMean;
    findings.push_back({skews_rank ? Severity::kProblem : Severity::kNotice, "hot_expert", text + ".", "hot_expert"});
  }
}

void find_starved(const ReportInput& input, std::vector<Finding>& findings) {
  constexpr double kMinStarved = 0.05;   // of the capture
  constexpr double kMinRequests = 0.25;  // of the requests
  constexpr double kSteps = 2;           // a request that waits for fewer steps than this came at a bad moment
  const Timeline& timeline = input.timeline;
  const IntervalSet waiting = find_waiting(input);
  const int64_t waiting_ns = total(waiting), wall_ns = timeline.end_ns - timeline.begin_ns;
  if (waiting_ns == 0 || wall_ns <= 0) return;
  const int64_t starved_ns = total(intersect(find_gaps(input), waiting));
  const double steps = static_cast<double>(timeline.steps.size());
  const double step_ns = steps > 0 ? static_cast<double>(total_step_ns(timeline)) / steps : 0;
  std::vector<double> queue_ms;
  double long_waits = 0;
  for (const RequestInfo& request : timeline.requests) {
    if (!request.queued_ns && !request.first_scheduled_ns) continue;
    const int64_t end_ns = request.first_scheduled_ns.value_or(request.finished_ns.value_or(timeline.end_ns));
    const auto queue_ns = static_cast<double>(end_ns - request.queued_ns.value_or(timeline.begin_ns));
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
  findings.push_back({cost.share >= kProblem ? Severity::kProblem : Severity::kNotice, "profiler_cost",
                      format("Recording itself takes %.1f %% of the time in steps (rank %d: %lld records at %.1f ns); a lower "
                             "level disturbs less.",
                             100 * cost.share, cost.rank, whole(cost.records), cost.span_cost_ns),
                      "run"});
}

void find_exposed(const ReportInput& input, std::vector<Finding>& findings) {
  constexpr double kMinShare = 0.25;
  int64_t exposed_ns = 0;
  for (const StepInfo& step : input.timeline.steps)
    exposed_ns += break_down(input.activity.at(0), {step.begin_ns, step.end_ns}).exposed;
  const auto steps_ns = static_cast<double>(total_step_ns(input.timeline));
  const auto exposed = static_cast<double>(exposed_ns);
  if (steps_ns <= 0 || exposed < kMinShare * steps_ns) return;
  findings.push_back({Severity::kNotice, "exposed_communication",
                      format("The coordinator spends %.0f %% of its steps on communication that nothing hides, %.1f us a step.",
                             100 * exposed / steps_ns, exposed / 1e3 / static_cast<double>(input.timeline.steps.size())),
                      "step"});
}

}  // namespace

std::vector<Finding> find_problems(const ReportInput& input) {
  std::vector<Finding> findings;
  find_lost(input, findings);
  find_clock_trouble(input, findings);
  find_stragglers(input, findings);
  find_hot(input, findings);
  find_starved(input, findings);
  find_recording_trouble(input, findings);
  find_exposed(input, findings);
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& x, const Finding& y) { return x.severity > y.severity; });
  if (findings.empty())
    findings.push_back({Severity::kInfo, "none",
                        format("Nothing stands out in %zu steps and %zu requests.", input.timeline.steps.size(),
                               input.timeline.requests.size()),
                        "run"});
  return findings;
}

}  // namespace ferry
