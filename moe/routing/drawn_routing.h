#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/routing/routing_trace.h"

namespace ferry {

/// How drawn routing is.
struct DrawnRouting {
  double slope = 0;           // popularity of the expert of rank r is (r + 1)^-slope (Zipf); 0: all alike
  int64_t decode_steps = 64;  // of decode_rows each
  int64_t decode_rows = 64;
  int64_t prefill_rows = 2048;  // in one step
  uint64_t seed = 1;
};

/// Routing of nobody's text, the same on every machine: each row and layer draws top_k different experts, one after the other
/// by popularity; which experts are popular differs from layer to layer. Drawing without putting back is the k largest of
/// log(popularity) + Gumbel noise (Kool, van Hoof and Welling, arXiv 1903.06059).
RoutingTrace draw_routing(const RoutingShape& shape, const DrawnRouting& how);

/// The same where it is known how often each expert of each layer was chosen, [num_layers][num_experts]; `how.slope` says
/// nothing. Every expert is drawn about as often: noise of that kind is a race of exponential clocks, in which one that is
/// among the first k with probability p has a rate in proportion to -log(1 - p).
RoutingTrace draw_routing_like(const RoutingShape& shape, std::span<const std::vector<int64_t>> counts,
                               const DrawnRouting& how);

}  // namespace ferry
