#include "profiler/report/views/views.h"

namespace ferry {

std::vector<Table> make_views(const ReportInput& input) {
  std::vector<Table> tables;
  for (const auto make :
       {make_run_view, make_phase_view, make_draft_view, make_draft_place_view, make_step_view, make_layer_view,
        make_layer_type_view, make_operator_view, make_transfer_view, make_traffic_view, make_expert_view, make_balance_view,
        make_hot_expert_view, make_straggler_view, make_request_view, make_free_view}) {
    tables.push_back(make(input));
  }
  return tables;
}

}  // namespace ferry
