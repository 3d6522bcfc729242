#include "runtime/model/trunk.h"

#include <utility>

#include "kernels/host_rows.h"
#include "profiler/span.h"
#include "runtime/base/check.h"

namespace ferry {

Trunk::Trunk(const ModelConfig& config, const TrunkWeights& weights, Stream& stream, DType dtype, const DecoderLimits& limits)
    : config_(config),
      weights_(weights),
      limits_(limits),
      runner_(config, weights.quantization, stream, dtype, limits),
      head_(config, weights, runner_, dtype, limits) {
  int num_kv = 0, num_recurrent = 0;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerPlan& plan = config.layers[i];
    layers_.push_back({.plan = plan,
                       .weights = weights.layers[i],
                       .state_layer = plan.mixer == Mixer::kAttention ? num_kv++ : num_recurrent++,
                       .expert_layer = static_cast<int64_t>(i)});
  }
  for (MicroBatch& batch : micro_batches_) {
    batch.sequences.reserve(static_cast<std::size_t>(limits.max_sequences));
    batch.block_tables.reserve(static_cast<std::size_t>(limits.max_sequences));
    batch.state_slots.reserve(static_cast<std::size_t>(limits.max_sequences));
  }
}

void Trunk::show(const Tap& tap, int64_t layer, ConstMatrixView rows) {
  HostRows look(runner_.stream(), rows.dtype, rows.rows, rows.cols);
  look.fetch(rows);
  tap.matrix("hidden", layer, look.look());
}

ConstMatrixView Trunk::forward(const StepInput& input, KvCache& kv_cache, RecurrentState& recurrent_state,
                               TokenDispatcher& dispatcher, const Tap* tap, RoutingHook* routing) {
  const auto num_tokens = static_cast<int64_t>(input.token_ids.size());
  FERRY_CHECK_LE(num_tokens, limits_.max_tokens);
  FERRY_CHECK_LE(static_cast<int64_t>(input.sequences.size()), limits_.max_sequences);
  FERRY_CHECK_LE(static_cast<int64_t>(input.logit_rows.size()), limits_.max_logit_rows);
  FERRY_CHECK_EQ(static_cast<int64_t>(input.positions.size()), 3 * num_tokens);
  const LayerStep step{input, kv_cache, recurrent_state, dispatcher, tap, routing};
  // A tap sees the rows of a step together.
  const std::span<MicroBatch> batches = make_micro_batches(input, tap == nullptr ? limits_.min_micro_batch : 0, micro_batches_);
  std::array<DispatchHandle, TokenDispatcher::kMaxInFlight> routed;  // by micro-batch
  const MatrixView hidden = runner_.hidden().rows_from(0, num_tokens);
  const auto finish = [&](std::size_t m, std::size_t layer) {
    check_context().micro_batch = static_cast<int>(m);
    check_context().layer = static_cast<int>(layer);
    const bool has_more = layer + 1 < layers_.size();
    runner_.finish_ffn(step, batches[m], std::move(routed[m]), layers_[layer]);
    if (tap != nullptr || !has_more) runner_.settle(batches[m]);
    if (tap != nullptr && has_more) show(*tap, static_cast<int64_t>(layer) + 1, hidden);
  };

  runner_.embed(weights_.embed_tokens, input, hidden);
  runner_.begin_step(input);
  if (tap != nullptr) show(*tap, 0, hidden);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    for (std::size_t m = 0; m < batches.size(); ++m) {
      if (i > 0) finish(m, i - 1);
      check_context().micro_batch = static_cast<int>(m);
      check_context().layer = static_cast<int>(i);
      runner_.mix(step, batches[m], layers_[i]);
      routed[m] = runner_.begin_ffn(step, batches[m], layers_[i]);
    }
  }
  for (std::size_t m = 0; m < batches.size(); ++m) finish(m, layers_.size() - 1);
  check_context().micro_batch = 0;
  check_context().layer = -1;
  const ConstMatrixView logits = logits_of(input.logit_rows);
  if (tap != nullptr) show(*tap, config_.num_layers(), head_.normed());
  return logits;
}

}  // namespace ferry
