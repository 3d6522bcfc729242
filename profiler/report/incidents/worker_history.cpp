#include "profiler/report/incidents/worker_history.h"

#include <algorithm>
#include <map>

namespace ferry {
namespace {

std::optional<WorkerState> state_of(const std::string& name) {
  for (int state = 0; state < kNumWorkerStates; ++state) {
    if (name == worker_state_name(static_cast<WorkerState>(state))) return static_cast<WorkerState>(state);
  }
  return std::nullopt;
}

/// Of a look at the balance that came to nothing there is nothing to tell.
bool is_change(PlacementEvent event) { return event > PlacementEvent::kLook && event <= PlacementEvent::kSwitch; }

/// Tells each event what the capture's description says of it: the first that is left of the same worker and state, since both
/// are written in the same order.
void add_reasons(const std::vector<WorkerChangeFacts>& facts, std::vector<WorkerEvent>& events) {
  std::vector<bool> is_used(facts.size(), false);
  for (WorkerEvent& event : events) {
    for (std::size_t i = 0; i < facts.size(); ++i) {
      if (is_used[i] || facts[i].rank != event.rank || facts[i].to != worker_state_name(event.to)) continue;
      is_used[i] = true;
      event.from = state_of(facts[i].from);
      event.reason = facts[i].reason;
      break;
    }
  }
  std::map<int32_t, WorkerState> states;
  for (WorkerEvent& event : events) {  // of those of older captures, what the events themselves tell
    const auto known = states.find(event.rank);
    if (!event.from && known != states.end()) event.from = known->second;
    states[event.rank] = event.to;
  }
}

}  // namespace

WorkerHistory find_worker_history(const ReportInput& input) {
  const Timeline& timeline = input.timeline;
  WorkerHistory history;
  for (const Slice& slice : timeline.slices) {
    if (timeline.lanes[static_cast<std::size_t>(slice.lane)].rank != 0) continue;
    if (slice.zone == Zone::kWorkerChange && slice.a < kNumWorkerStates) {
      history.events.push_back({.at_ns = slice.begin_ns,
                                .rank = static_cast<int32_t>(slice.b),
                                .from = {},
                                .to = static_cast<WorkerState>(slice.a),
                                .reason = {},
                                .at = exchange_of(slice)});
    } else if (slice.zone == Zone::kPlacementChange && is_change(placement_event(slice.a))) {
      history.placements.push_back({.when = {slice.begin_ns, slice.end_ns},
                                    .event = placement_event(slice.a),
                                    .epoch = slice.b,
                                    .num_experts = placement_experts(slice.a)});
    }
  }
  std::ranges::stable_sort(history.events, {}, &WorkerEvent::at_ns);
  std::ranges::stable_sort(history.placements, {}, [](const PlacementChange& change) { return change.when.begin; });
  add_reasons(input.capture.info.worker_changes, history.events);
  return history;
}

bool is_trouble(const WorkerEvent& event) { return event.to == WorkerState::kSuspect || event.to == WorkerState::kMasked; }

bool was_in_vain(const Slice& wait, const WorkerHistory& history) {
  return std::ranges::any_of(history.events, [&](const WorkerEvent& event) {
    return is_trouble(event) && event.rank == static_cast<int32_t>(wait.b) && event.at_ns >= wait.end_ns &&
           event.at.layer >= 0 && event.at == exchange_of(wait);
  });
}

}  // namespace ferry
