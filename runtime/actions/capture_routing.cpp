#include "runtime/actions/capture_routing.h"

#include <algorithm>

#include "moe/routing/drawn_routing.h"

namespace ferry {

RoutingTrace routing_of(const Capture& capture) {
  const CaptureInfo& info = capture.info;
  if (!capture.routing.empty()) {
    RoutingTrace recorded = decode_routing_trace(capture.routing, "routing.ferryrt");
    if (!recorded.steps.empty()) return recorded;
  }
  RoutingTrace nothing;
  const auto num_experts = static_cast<int64_t>(info.expert_rank.size());
  if (num_experts == 0 || num_experts > kRoutingExpertsMax || info.model.top_k < 1 || info.model.top_k > num_experts)
    return nothing;
  RoutingShape shape{.model = info.model.name, .num_experts = num_experts, .top_k = info.model.top_k, .layers = {}};
  std::vector<std::vector<int64_t>> counts;
  for (std::size_t l = 0; l < info.expert_tokens.size() && std::ssize(counts) < kRoutingLayersMax; ++l) {
    if (std::ranges::all_of(info.expert_tokens[l], [](int64_t n) { return n == 0; })) continue;
    shape.layers.push_back(static_cast<int64_t>(l));
    counts.push_back(info.expert_tokens[l]);
  }
  constexpr DrawnRouting kEnough{.decode_steps = 32, .decode_rows = 32, .prefill_rows = 512};
  return counts.empty() ? nothing : draw_routing_like(shape, counts, kEnough);
}

}  // namespace ferry
