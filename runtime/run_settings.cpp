#include "runtime/run_settings.h"

namespace ferry {
namespace {

std::string speculation_name(const Speculation& speculation) {
  if (speculation.source == Speculation::Source::kAuto) return "auto";
  const std::string count = std::to_string(speculation.max_drafts);
  return speculation.source == Speculation::Source::kNgram && speculation.max_drafts > 0 ? "ngram:" + count : count;
}

std::string redundancy_name(const RedundancyChoice& choice) {
  if (choice.is_twice) return "2x";
  if (choice.extra_slots > 0) return std::to_string(choice.extra_slots);
  if (choice.share <= 0) return "0";
  std::string percent = std::to_string(100 * choice.share);
  percent.erase(percent.find_last_not_of('0') + 1);
  if (percent.back() == '.') percent.pop_back();
  return percent + "%";
}

std::string placement_name(const PlacementOptions& placement) {
  using Policy = PlacementOptions::Policy;
  switch (placement.policy) {
    case Policy::kAuto: return "auto";
    case Policy::kContiguous: return "contiguous";
    case Policy::kEplb: return "eplb";
    case Policy::kSpread: return "spread";
    case Policy::kFile: return placement.file.string();
  }
  return "";
}

}  // namespace

std::map<std::string, std::string> describe_settings(const EngineOptions& options, const SchedulerOptions& limits,
                                                     const Quantization& weights, DType kv_dtype, int64_t micro_batch) {
  return {{"--max-seqs", std::to_string(limits.max_running)},
          {"--token-budget", std::to_string(limits.token_budget)},
          {"--prefill-chunk", std::to_string(limits.prefill_chunk)},
          {"--memory", std::to_string(options.memory_bytes) + "B"},
          {"--max-context", std::to_string(limits.max_context)},
          {"--speculate", speculation_name(options.speculation)},
          {"--quantize", quantization_name(weights)},
          {"--kv-cache-dtype", dtype_name(kv_dtype)},
          {"--combine", options.combine == CombineMode::kFast ? "fast" : "exact"},
          {"--micro-batch", std::to_string(micro_batch)},
          {"--placement", placement_name(options.placement)},
          {"--redundancy", redundancy_name(options.placement.redundancy)},
          {"--rebalance", std::to_string(options.placement.rebalance_steps)}};
}

}  // namespace ferry
