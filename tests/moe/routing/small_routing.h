#pragma once

#include "moe/routing/routing_trace.h"

namespace ferry::test {

/// Layers 1 and 3 of 4 experts, 2 a token: a prompt of 3 rows, then two decode steps of 2 rows.
inline RoutingTrace small_routing() {
  RoutingTrace trace{.shape = {.model = "small", .num_experts = 4, .top_k = 2, .layers = {1, 3}}};
  trace.steps = {{.id = 7, .phase = RoutingPhase::kPrefill, .num_rows = 3, .first = 0},
                 {.id = 8, .phase = RoutingPhase::kDecode, .num_rows = 2, .first = 12},
                 {.id = 9, .phase = RoutingPhase::kDecode, .num_rows = 2, .first = 20}};
  trace.ids = {0, 1, 0, 2, 0, 3, 3, 2, 3, 1, 3, 0,  // prompt: layer 1, layer 3
               1, 2, 2, 3, 0, 1, 0, 1,              // step 8
               0, 1, 0, 1, 2, 3, 1, 2};             // step 9
  return trace;
}

}  // namespace ferry::test
