#include "profiler/report/views/views.h"

#include <algorithm>

#include "profiler/report/incidents/worker_history.h"
#include "profiler/report/stacks/stack_times.h"
#include "profiler/report/views/cells.h"

namespace ferry {
namespace {

bool has_worker_changes(const ReportInput& input) {
  const WorkerHistory history = find_worker_history(input);
  return !history.events.empty() || !history.placements.empty();
}

bool has_counters(const ReportInput& input) {
  return std::ranges::any_of(input.capture.ranks, [](const RankCapture& rank) { return !rank.counters.sources.empty(); });
}

bool has_memory(const ReportInput& input) {
  return std::ranges::any_of(input.capture.ranks, [](const RankCapture& rank) { return !rank.memory.samples.empty(); });
}

}  // namespace

std::vector<Table> make_views(const ReportInput& input) {
  std::vector<Table> tables;
  for (const auto make : {make_critical_path_view, make_run_view, make_phase_view, make_draft_view, make_draft_place_view,
                          make_step_view, make_layer_view, make_layer_type_view, make_kernel_view, make_kernel_layer_view,
                          make_operator_view, make_transfer_view, make_traffic_view, make_expert_view, make_balance_view,
                          make_hot_expert_view, make_straggler_view, make_request_view, make_free_view}) {
    tables.push_back(make(input));
    if (make == make_operator_view && has_device(input)) tables.push_back(make_device_view(input));
    if (make == make_operator_view && has_counters(input)) {
      tables.push_back(make_counter_view(input));
      tables.push_back(make_energy_view(input));
    }
    if (make == make_free_view && has_memory(input)) {
      tables.push_back(make_memory_view(input));
      tables.push_back(make_memory_timeline(input));
    }
    if (make == make_step_view && has_worker_changes(input)) {
      tables.push_back(make_incident_view(input));
      tables.push_back(make_worker_view(input));
    }
  }
  if (has_stacks(input)) {
    tables.push_back(make_stack_view(input));
    tables.push_back(make_folded_stack_view(input));
  }
  return tables;
}

}  // namespace ferry
