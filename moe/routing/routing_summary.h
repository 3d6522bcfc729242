#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "moe/placement/load_windows.h"
#include "moe/routing/routing_trace.h"

namespace ferry {

/// What was asked of each expert in all steps of the trace.
ExpertLoads loads_of(const RoutingTrace& trace);
/// Of steps of one phase; no steps if it has none.
ExpertLoads loads_of(const RoutingTrace& trace, RoutingPhase phase);

/// How even the routing of a phase is. Means are over layers.
struct RoutingSummary {
  int64_t num_steps = 0;
  int64_t num_rows = 0;
  double rows_per_step = 0;
  double touched = 0;          // experts that a step gives rows, of a layer
  double hottest = 0;          // rows of a layer's most asked expert / mean over experts
  double top_eighth = 0;       // share of the rows that go to the eighth of the experts that is asked most
  double unused = 0;           // experts of a layer without any row
  double zipf = 0;             // slope of popularity over rank, fitted to log rows of all experts that have any; 0 is even
  int64_t hottest_layer = 0;   // the model's number, and
  int64_t hottest_expert = 0;  // which expert there has the largest share of its layer
};
RoutingSummary summarise_routing(const RoutingTrace& trace, RoutingPhase phase);

/// The whole as lines for people.
std::string routing_text(const RoutingTrace& trace);

}  // namespace ferry
