#include "profiler/report/findings/worker_findings.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "profiler/report/findings/change_text.h"
#include "profiler/report/findings/format.h"
#include "profiler/report/findings/rank_findings.h"
#include "profiler/report/incidents/incident_cost.h"
#include "profiler/report/lost_time/lost_time.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

double in_ms(double ns) { return ns / 1e6; }

const char* incident_kind(IncidentCause cause) {
  switch (cause) {
    case IncidentCause::kLost: return "worker_lost";
    case IncidentCause::kLate: return "worker_late";
    case IncidentCause::kLeft: return "worker_left";
    case IncidentCause::kJoined: return "worker_joined";
    case IncidentCause::kMoved: return "experts_moved";
  }
  return "";
}

/// "Rank 2 was lost, rank 3 joined (steps 812 to 852, 0.9 s)".
std::string head(const Timeline& timeline, const Incident& incident) {
  constexpr std::size_t kNamed = 4;
  std::string text;
  for (std::size_t p = 0; p < std::min(kNamed, incident.parts.size()); ++p)
    text += (p == 0 ? "" : ", ") + what_happened(incident.parts[p]);
  if (incident.parts.size() > kNamed) text += format(" and %zu more", incident.parts.size() - kNamed);
  text.front() = static_cast<char>(text.front() - (text.front() >= 'a' ? 'a' - 'A' : 0));
  const double seconds = static_cast<double>(incident.when.end - incident.when.begin) / 1e9;
  if (incident.first_step == incident.last_step) return text + format(" (between steps, %.2f s)", seconds);
  return text + format(" (steps %u to %u, %.2f s%s)", timeline.steps[incident.first_step].step,
                       timeline.steps[incident.last_step - 1].step, seconds, incident.is_open ? ", not over yet" : "");
}

/// " (12.00 waited for it, 15.00 computing 9 rows here)", of what was measured.
std::string parts_text(const IncidentCost& cost) {
  constexpr int64_t kLeast = 5000;  // ns: what is not 0.00 ms
  std::string text;
  const auto add = [&](CostPart part, const std::string& what) {
    if (cost.part(part) < kLeast) return;
    text += format("%s%.2f ", text.empty() ? "" : ", ", in_ms(static_cast<double>(cost.part(part)))) + what;
  };
  add(CostPart::kWaited, "waiting for it");
  add(CostPart::kResent, format("for %lld rows asked of others", whole(cost.rows_by_workers)));
  add(CostPart::kRead, format("reading %lld experts", whole(cost.experts_read)));
  add(CostPart::kComputed, format("computing %lld rows here", whole(cost.rows_by_coordinator)));
  add(CostPart::kPlacement, "placing experts");
  if (const double rest = cost.rest_ns(); rest > std::max({double{kLeast}, 0.1 * cost.struck_ns, 2 * cost.struck_noise_ns}))
    text += format("%s%.2f otherwise", text.empty() ? "" : ", ", in_ms(rest));
  return text.empty() ? "" : " (" + text + ")";
}

std::string struck_text(const IncidentCost& cost) {
  if (cost.struck_compared == 0) return "";
  constexpr double kSigmas = 2;
  const double more = in_ms(cost.struck_ns), noise = kSigmas * in_ms(cost.struck_noise_ns);
  const std::string steps = cost.struck_compared == 1 ? "1 step" : format("%lld steps", whole(cost.struck_compared));
  if (std::abs(more) <= noise)
    return steps +
           format(" took neither longer nor less than usual, as far as can be told (%+.2f ± %.2f ms)", more, noise / kSigmas);
  return steps +
         format(" took %.2f ± %.2f ms %s than usual in all", std::abs(more), noise / kSigmas, more > 0 ? "longer" : "less") +
         parts_text(cost);
}

/// "4.0 % slower", "26 × as slow", "no slower than before".
std::string pace_text(const Slowdown& slowdown, const char* same) {
  if (!slowdown.is_told) return same;
  return change_text(slowdown.share(), 1, {.up = "slower", .down = "faster", .times = "slow"});
}

std::string meanwhile_text(const IncidentCost& cost, const Incident& incident) {
  if (cost.meanwhile.compared == 0) return "";
  const int64_t count = cost.meanwhile.compared;
  std::string text = (count == 1 ? "the other step was " : format("the other %lld steps were ", whole(count))) +
                     pace_text(cost.meanwhile, "neither slower nor faster, as far as can be told");
  if (cost.has_switched) return text + format(" until %lld experts were read elsewhere", whole(cost.experts_moved));
  return text + (incident.is_open ? " until the capture ended" : "");
}

std::string cost_text(const ReportInput& input, const Incident& incident, const IncidentCost& cost) {
  if (!input.capture.info.selection.empty()) return ".";  // steps between the kept ones were not recorded
  const auto steps = static_cast<int64_t>(incident.last_step - incident.first_step);
  if (steps == 0) return ": no step was under way.";
  const int64_t compared = cost.struck_compared + cost.meanwhile.compared;
  if (compared == 0)
    return format(": what that cost cannot be told, since too few steps like its %lld lie outside of such times.",
                  whole(steps));
  std::string text;
  for (const std::string& piece : {struck_text(cost), meanwhile_text(cost, incident)}) {
    if (!piece.empty()) text += (text.empty() ? ": " : "; ") + piece;
  }
  if (cost.struck_compared > 0 && cost.meanwhile.compared > 0)
    text += format("; together that is %+.2f ± %.2f ms", in_ms(cost.total_ns()), in_ms(cost.noise_ns));
  if (cost.after.compared > 0) text += "; afterwards steps are " + pace_text(cost.after, "as fast as before");
  text += ".";
  if (compared < steps) text += format(" Of %lld of its %lld steps it cannot be told.", whole(steps - compared), whole(steps));
  return text;
}

/// Workers that were late or lost, or both, one after the other.
std::set<int32_t> doubted_ranks(const Incident& incident) {
  std::set<int32_t> ranks;
  for (const Incident::Part& part : incident.parts)
    if (part.cause <= IncidentCause::kLate) ranks.insert(part.rank);
  return ranks;
}

/// " Rank 2 did not run at all for 52.1 ms of that: …", of workers that could tell later.
std::string stops_text(const Incident& incident, const std::vector<IntervalSet>& stops) {
  std::string text;
  for (const int32_t rank : doubted_ranks(incident)) {
    const int64_t ns = total(clip(stops.at(static_cast<std::size_t>(rank)), incident.when));
    if (ns == 0) continue;
    text += format(" Rank %d did not run at all for %.1f ms of that: %s.", rank, in_ms(static_cast<double>(ns)), kWhyStopped);
  }
  return text;
}

Finding::Severity severity_of(const Incident& incident, const IncidentCost& cost) {
  using Severity = Finding::Severity;
  const IncidentCause worst = incident.parts.front().cause;
  if (worst == IncidentCause::kLost) return Severity::kProblem;
  const bool is_felt =
      cost.struck_ns > 2 * cost.struck_noise_ns || (cost.meanwhile.is_told && cost.meanwhile.usually_more_ns > 0);
  return worst == IncidentCause::kLate || is_felt ? Severity::kNotice : Severity::kInfo;
}

/// Those that tell most, by time: the worst causes, then the highest costs.
std::vector<std::size_t> choose_told(const std::vector<Incident>& incidents, const std::vector<IncidentCost>& costs) {
  constexpr std::size_t kTold = 12;
  std::vector<std::size_t> told(incidents.size());
  std::iota(told.begin(), told.end(), std::size_t{0});
  std::ranges::stable_sort(told, [&](std::size_t a, std::size_t b) {
    return std::pair(incidents[a].parts.front().cause, -costs[a].total_ns()) <
           std::pair(incidents[b].parts.front().cause, -costs[b].total_ns());
  });
  told.resize(std::min(kTold, told.size()));
  std::ranges::sort(told);
  return told;
}

}  // namespace

WorkerChanges find_worker_changes(const ReportInput& input) {
  const WorkerHistory history = find_worker_history(input);
  const std::vector<Incident> incidents = find_incidents(input.timeline, history);
  const std::vector<IncidentCost> costs = find_incident_costs(input, history, incidents);
  const std::vector<std::size_t> told = choose_told(incidents, costs);
  const auto steps_ns = static_cast<double>(std::max<int64_t>(total_step_ns(input.timeline), 1));
  const std::vector<IntervalSet> stops = find_stops(input);
  WorkerChanges changes;
  changes.findings.reserve(told.size() + 1);
  for (const std::size_t i : told) {
    const double more_ns = std::max(costs[i].total_ns(), 0.0);
    const double saved_ns = more_ns > 2 * costs[i].noise_ns ? more_ns : 0;  // less may be chance
    changes.findings.push_back({.severity = severity_of(incidents[i], costs[i]),
                                .kind = incident_kind(incidents[i].parts.front().cause),
                                .text = head(input.timeline, incidents[i]) + cost_text(input, incidents[i], costs[i]) +
                                        stops_text(incidents[i], stops),
                                .table = "incident",
                                .saved_ms = saved_ns / 1e6,
                                .saved_share = saved_ns / steps_ns});
    if (saved_ns <= 0) continue;
    for (const int32_t rank : doubted_ranks(incidents[i]))
      changes.counted.push_back({rank, incidents[i].when, incidents[i].first_step, incidents[i].last_step});
  }
  if (told.size() < incidents.size()) {
    changes.findings.push_back(
        {.severity = Finding::Severity::kInfo,
         .kind = "more_incidents",
         .text = format("Workers came, went or were in doubt %zu times; the table has those that are not named here.",
                        incidents.size()),
         .table = "incident"});
  }
  return changes;
}

}  // namespace ferry
