#include <algorithm>

#include "profiler/report/incidents/incident_cost.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

using Row = std::vector<Table::Cell>;

Table::Cell step_cell(const Timeline& timeline, int64_t at_ns) {
  Table::Cell cell;
  if (const StepInfo* step = timeline.step_at(at_ns)) cell = static_cast<int64_t>(step->step);
  return cell;
}

/// The number of the incident that a moment belongs to.
Table::Cell incident_cell(const std::vector<Incident>& incidents, int64_t at_ns) {
  Table::Cell cell;
  for (std::size_t i = 0; i < incidents.size(); ++i) {
    if (at_ns >= incidents[i].when.begin && at_ns <= incidents[i].when.end) cell = static_cast<int64_t>(i + 1);
  }
  return cell;
}

const char* event_name(PlacementEvent event) {
  switch (event) {
    case PlacementEvent::kLook: break;
    case PlacementEvent::kBegin: return "told";
    case PlacementEvent::kBeginForBalance: return "told, for balance";
    case PlacementEvent::kBeginByHand: return "told, by hand";
    case PlacementEvent::kGiveUp: return "given up";
    case PlacementEvent::kSwitch: return "switched";
  }
  return "";
}

const char* cause_name(IncidentCause cause) {
  switch (cause) {
    case IncidentCause::kLost: return "lost";
    case IncidentCause::kLate: return "late";
    case IncidentCause::kLeft: return "left";
    case IncidentCause::kJoined: return "joined";
    case IncidentCause::kMoved: return "experts moved";
  }
  return "";
}

/// "rank 2 lost, rank 3 joined".
std::string what_happened(const Incident& incident) {
  std::string text;
  for (const Incident::Part& part : incident.parts) {
    if (!text.empty()) text += ", ";
    if (part.rank >= 0) text += "rank " + std::to_string(part.rank) + " ";
    text += cause_name(part.cause);
  }
  return text;
}

Row event_row(const Timeline& timeline, const std::vector<Incident>& incidents, const WorkerEvent& event) {
  Table::Cell from;
  if (event.from) from = worker_state_name(*event.from);
  return {us_cell(event.at_ns),
          step_cell(timeline, event.at_ns),
          static_cast<int64_t>(event.rank),
          from,
          worker_state_name(event.to),
          event.reason,
          incident_cell(incidents, event.at_ns)};
}

Row placement_row(const Timeline& timeline, const std::vector<Incident>& incidents, const PlacementChange& change) {
  return {us_cell(change.when.begin),
          step_cell(timeline, change.when.begin),
          Table::Cell(),
          Table::Cell(),
          event_name(change.event),
          "placement " + std::to_string(change.epoch) + ": " + std::to_string(change.num_experts) + " experts to read",
          incident_cell(incidents, change.when.begin)};
}

/// "+4.0 %" as a number, empty where it cannot be told.
Table::Cell percent_cell(const Slowdown& slowdown) { return cell_if(slowdown.compared > 0, 100 * slowdown.share()); }

Row incident_row(const Timeline& timeline, const Incident& incident, const IncidentCost& cost, std::size_t idx) {
  Table::Cell first, last;
  if (incident.first_step < incident.last_step) {
    first = static_cast<int64_t>(timeline.steps[incident.first_step].step);
    last = static_cast<int64_t>(timeline.steps[incident.last_step - 1].step);
  }
  const bool is_struck = cost.struck_compared > 0, is_compared = is_struck || cost.meanwhile.compared > 0;
  const auto part = [&](CostPart p) { return cell_if(is_struck, to_us(cost.part(p))); };
  return {static_cast<int64_t>(idx + 1),
          what_happened(incident),
          us_cell(incident.when.begin),
          us_cell(incident.when.end - incident.when.begin),
          incident.is_open ? "no" : "yes",
          first,
          last,
          static_cast<int64_t>(incident.last_step - incident.first_step),
          cost.struck_compared + cost.meanwhile.compared,
          cell_if(is_compared, cost.total_ns() / 1e3),
          cell_if(is_compared, cost.noise_ns / 1e3),
          cost.struck,
          cell_if(is_struck, cost.struck_ns / 1e3),
          part(CostPart::kWaited),
          part(CostPart::kResent),
          part(CostPart::kRead),
          part(CostPart::kComputed),
          part(CostPart::kPlacement),
          cell_if(is_struck, cost.rest_ns() / 1e3),
          cell_if(cost.meanwhile.compared > 0, cost.meanwhile.more_ns / 1e3),
          percent_cell(cost.meanwhile),
          cost.meanwhile.is_told ? "yes" : "no",
          percent_cell(cost.after),
          cost.after.is_told ? "yes" : "no",
          cost.rows_by_workers,
          cost.rows_by_coordinator,
          cost.experts_read,
          cost.experts_moved};
}

}  // namespace

Table make_worker_view(const ReportInput& input) {
  Table table{.id = "worker_change",
              .title = "Worker changes",
              .note = "How workers came to stand, and when the placement of experts changed, as the coordinator found it.",
              .columns = {{"at_us", 3}, {"step"}, {"rank"}, {"from"}, {"to"}, {"reason"}, {"incident"}}};
  const WorkerHistory history = find_worker_history(input);
  const std::vector<Incident> incidents = find_incidents(input.timeline, history);
  for (const WorkerEvent& event : history.events) table.rows.push_back(event_row(input.timeline, incidents, event));
  for (const PlacementChange& change : history.placements)
    table.rows.push_back(placement_row(input.timeline, incidents, change));
  std::ranges::stable_sort(table.rows, {}, [](const Row& row) { return std::get<double>(row.front()); });
  return table;
}

Table make_incident_view(const ReportInput& input) {
  Table table{
      .id = "incident",
      .title = "What worker changes cost",
      .note =
          "What steps took beyond those of the same phase and size outside of any incident, just before it where there "
          "are enough; noise: by which as many steps differ anyway. Struck: a worker was doubted or lost in the step, "
          "rows were answered by others, or a placement was seen to; waited to placement: what the coordinator did in "
          "them; rest: the difference, less than 0 where that was hidden. Meanwhile: the other steps until it was over; "
          "after: those behind it beside those before it; percent: of medians; told: more than chance.",
      .columns = {{"incident"},
                  {"what"},
                  {"begin_us", 3},
                  {"duration_us", 3},
                  {"is_over"},
                  {"first_step"},
                  {"last_step"},
                  {"steps"},
                  {"compared_steps"},
                  {"cost_us", 3},
                  {"noise_us", 3},
                  {"struck_steps"},
                  {"struck_us", 3},
                  {"waited_us", 3},
                  {"resent_us", 3},
                  {"read_us", 3},
                  {"computed_us", 3},
                  {"placement_us", 3},
                  {"rest_us", 3},
                  {"meanwhile_us", 3},
                  {"meanwhile_percent", 2},
                  {"meanwhile_told"},
                  {"after_percent", 2},
                  {"after_told"},
                  {"rows_by_workers"},
                  {"rows_by_coordinator"},
                  {"experts_read"},
                  {"experts_moved"}}};
  const WorkerHistory history = find_worker_history(input);
  const std::vector<Incident> incidents = find_incidents(input.timeline, history);
  const std::vector<IncidentCost> costs = find_incident_costs(input, history, incidents);
  for (std::size_t i = 0; i < incidents.size(); ++i)
    table.rows.push_back(incident_row(input.timeline, incidents[i], costs[i], i));
  return table;
}

}  // namespace ferry
