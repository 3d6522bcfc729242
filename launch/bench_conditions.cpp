#include "launch/bench_conditions.h"

#include <nlohmann/json.hpp>
#include <string>

namespace ferry {
namespace {

using nlohmann::ordered_json;

std::string placement_text(const PlacementOptions& o) {
  switch (o.policy) {
    case PlacementOptions::Policy::kAuto: return "auto";
    case PlacementOptions::Policy::kContiguous: return "contiguous";
    case PlacementOptions::Policy::kEplb: return "eplb";
    case PlacementOptions::Policy::kSpread: return "spread";
    case PlacementOptions::Policy::kFile: return o.file.string();
  }
  return "";
}

ordered_json redundancy_json(const RedundancyChoice& o) {
  if (o.is_twice) return "2x";
  if (o.share > 0) return std::to_string(100 * o.share) + "%";
  return o.extra_slots;
}

std::string speculation_text(const Speculation& o) {
  if (o.source == Speculation::Source::kAuto) return "auto";
  return (o.source == Speculation::Source::kNgram ? "ngram:" : "") + std::to_string(o.max_drafts);
}

}  // namespace

ordered_json option_conditions(const Options& options) {
  const EngineOptions& e = options.engine;
  const BenchOptions& b = options.bench;
  ordered_json conditions{{"decode_tokens", b.decode_tokens},
                          {"prefill_chunk", e.prefill_chunk},
                          {"combine", e.combine == CombineMode::kFast ? "fast" : "exact"},
                          {"lm_head_screen", e.lm_head_screen},
                          {"memory", e.cache_need.memory_is_given ? ordered_json(e.memory_bytes) : ordered_json()},
                          {"placement", placement_text(e.placement)},
                          {"redundancy", redundancy_json(e.placement.redundancy)},
                          {"rebalance", e.placement.rebalance_steps},
                          {"expert_load", e.expert_load.string()},
                          {"profile", e.profile},
                          {"traced", !e.trace.empty()},
                          {"trace_routing", e.trace_routing},
                          {"faults", e.faults.size()}};
  if (e.speculation == Speculation{}) return conditions;
  conditions["speculate"] = speculation_text(e.speculation);
  conditions["prompt_file"] = b.prompt_file.string();
  return conditions;
}

}  // namespace ferry
