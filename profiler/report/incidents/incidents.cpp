#include "profiler/report/incidents/incidents.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "profiler/report/lost_time/lost_time.h"

namespace ferry {
namespace {

/// What a state is the beginning of.
std::optional<IncidentCause> begun_by(WorkerState state) {
  switch (state) {
    case WorkerState::kSuspect: return IncidentCause::kLate;
    case WorkerState::kMasked: return IncidentCause::kLost;
    case WorkerState::kJoining: return IncidentCause::kJoined;
    case WorkerState::kLeaving: return IncidentCause::kLeft;
    case WorkerState::kVacant:
    case WorkerState::kHealthy:
    case WorkerState::kGone: return std::nullopt;
  }
  return std::nullopt;
}

/// Stretches as they begin and end, one after another.
class IncidentFinder {
 public:
  explicit IncidentFinder(const Timeline& timeline) : timeline_(timeline) {}

  void take(const WorkerEvent& event) {
    const auto open = workers_.find(event.rank);
    if (open != workers_.end()) {
      close(open->second, event.at_ns);
      workers_.erase(open);
    } else if (event.from && begun_by(*event.from)) {  // it began before the capture
      close({timeline_.begin_ns, {*begun_by(*event.from), event.rank}}, event.at_ns);
    }
    const std::optional<IncidentCause> cause = begun_by(event.to);
    const int64_t begin_ns = is_trouble(event) ? silent_since(event) : event.at_ns;
    if (cause) workers_.insert({event.rank, {begin_ns, {*cause, event.rank}}});
  }

  void take(const PlacementChange& change) {
    const bool is_end = change.event == PlacementEvent::kSwitch || change.event == PlacementEvent::kGiveUp;
    const Open from_before{timeline_.begin_ns, {IncidentCause::kMoved, -1}};
    if (placement_ || is_end) close(placement_.value_or(from_before), is_end ? change.when.end : change.when.begin);
    placement_.reset();
    if (!is_end) placement_ = Open{change.when.begin, {IncidentCause::kMoved, -1}};
  }

  std::vector<Incident> finish() {
    for (const auto& [rank, open] : workers_) add(open, timeline_.end_ns, /*is_open=*/true);
    if (placement_) add(*placement_, timeline_.end_ns, /*is_open=*/true);
    return merge();
  }

 private:
  struct Open {
    int64_t begin_ns;
    Incident::Part part;
  };

  int64_t silent_since(const WorkerEvent& event) const;
  void close(const Open& open, int64_t end_ns) { add(open, end_ns, /*is_open=*/false); }
  void add(const Open& open, int64_t end_ns, bool is_open);
  std::vector<Incident> merge();

  const Timeline& timeline_;
  std::map<int32_t, Open> workers_;  // by rank
  std::optional<Open> placement_;
  std::vector<Incident> found_;
};

/// Since when nothing was heard of a worker that is doubted or lost at the event: since its last reply, as far as the step goes
/// back in which that was found, or since it stopped, where it could tell later.
int64_t IncidentFinder::silent_since(const WorkerEvent& event) const {
  std::optional<int64_t> heard_ns;
  for (const Message& message : timeline_.messages) {
    if (message.source == event.rank && message.receive_end_ns <= event.at_ns)
      heard_ns = std::max(heard_ns.value_or(message.receive_end_ns), message.receive_end_ns);
  }
  const StepInfo* const step = timeline_.step_at(event.at_ns);
  int64_t since_ns = event.at_ns;
  if (heard_ns && step != nullptr) since_ns = std::max(*heard_ns, step->begin_ns);
  for (const Slice& slice : timeline_.slices) {
    const bool is_own = is_stop(slice) && timeline_.lanes[static_cast<std::size_t>(slice.lane)].rank == event.rank;
    if (is_own && slice.begin_ns <= event.at_ns && slice.end_ns >= since_ns) since_ns = std::min(since_ns, slice.begin_ns);
  }
  return since_ns;
}

void IncidentFinder::add(const Open& open, int64_t end_ns, bool is_open) {
  const std::vector<StepInfo>& steps = timeline_.steps;
  const auto first = std::ranges::upper_bound(steps, open.begin_ns, {}, &StepInfo::end_ns);
  const auto last = std::max(first, std::ranges::upper_bound(steps, end_ns, {}, &StepInfo::begin_ns));
  found_.push_back({.when = {open.begin_ns, end_ns},
                    .parts = {open.part},
                    .first_step = static_cast<std::size_t>(first - steps.begin()),
                    .last_step = static_cast<std::size_t>(last - steps.begin()),
                    .is_open = is_open});
}

std::vector<Incident> IncidentFinder::merge() {
  std::ranges::stable_sort(found_, {}, [](const Incident& incident) { return incident.when.begin; });
  std::vector<Incident> merged;
  for (Incident& next : found_) {
    const bool is_same =
        !merged.empty() && (next.when.begin <= merged.back().when.end || next.first_step < merged.back().last_step);
    if (!is_same) {
      merged.push_back(std::move(next));
      continue;
    }
    Incident& last = merged.back();
    last.when.end = std::max(last.when.end, next.when.end);
    last.first_step = std::min(last.first_step, next.first_step);
    last.last_step = std::max(last.last_step, next.last_step);
    last.is_open |= next.is_open;
    last.parts.insert(last.parts.end(), next.parts.begin(), next.parts.end());
  }
  for (Incident& incident : merged) {
    std::ranges::sort(incident.parts, {}, [](const Incident::Part& part) { return std::pair(part.cause, part.rank); });
    incident.parts.erase(std::unique(incident.parts.begin(), incident.parts.end()), incident.parts.end());
    // Experts that move because of a worker are that worker's.
    if (incident.parts.size() > 1) std::erase_if(incident.parts, [](const auto& part) { return part.rank < 0; });
  }
  return merged;
}

}  // namespace

std::string what_happened(const Incident::Part& part) {
  const std::string rank = "rank " + std::to_string(part.rank);
  switch (part.cause) {
    case IncidentCause::kLost: return rank + " was lost";
    case IncidentCause::kLate: return rank + " was late and suspected";
    case IncidentCause::kLeft: return rank + " left";
    case IncidentCause::kJoined: return rank + " joined";
    case IncidentCause::kMoved: return "experts moved for balance";
  }
  return "";
}

std::vector<Incident> find_incidents(const Timeline& timeline, const WorkerHistory& history) {
  IncidentFinder finder(timeline);
  for (const WorkerEvent& event : history.events) finder.take(event);
  for (const PlacementChange& change : history.placements) finder.take(change);
  return finder.finish();
}

}  // namespace ferry
