#include "runtime/model/mtp.h"

#include <utility>

#include "runtime/base/check.h"

namespace ferry {

MtpLayer::MtpLayer(const ModelConfig& config, const TrunkWeights& weights, Trunk& trunk, DType dtype)
    : weights_(weights),
      trunk_(trunk),
      layer_{.plan = config.mtp_plan(),
             .weights = weights.mtp->layer,
             .state_layer = static_cast<int>(config.num_layers_of(Mixer::kAttention)),
             .expert_layer = config.num_layers()},
      hidden_dim_(config.hidden_dim),
      pairs_(trunk.runner().stream().memory(), dtype, trunk.limits().max_tokens, 2 * config.hidden_dim) {}

void MtpLayer::copy_hidden(MatrixView out) {
  trunk_.runner().norm(Zone::kFinalNorm, trunk_.hidden().rows_from(0, out.rows), weights_.norm, out);
}

ConstMatrixView MtpLayer::run(const MtpInput& input, KvCache& kv_cache, RecurrentState& recurrent_state,
                              TokenDispatcher& dispatcher) {
  const auto num_pairs = static_cast<int64_t>(input.step.token_ids.size());
  FERRY_CHECK_EQ(static_cast<int64_t>(input.rows.size()), num_pairs);
  const MtpWeights& w = *weights_.mtp;
  LayerRunner& runner = trunk_.runner();
  const MatrixView pairs = pairs_.top(num_pairs), embeddings = pairs.cols_from(0, hidden_dim_),
                   hidden = pairs.cols_from(hidden_dim_, hidden_dim_);
  runner.embed(weights_.embed_tokens, input.step, embeddings);
  runner.norm(Zone::kInputNorm, embeddings, w.embedding_norm, embeddings);
  gather_rows(runner.stream(), {.x = input.hidden, .row_idx = input.rows, .out = hidden});
  runner.norm(Zone::kInputNorm, hidden, w.hidden_norm, hidden);
  runner.products().linear(Zone::kMtpFc, {.values = pairs}, *w.fc, runner.hidden().rows_from(0, num_pairs));

  const LayerStep step{input.step, kv_cache, recurrent_state, dispatcher};
  make_micro_batches(input.step, 0, micro_batches_);
  MicroBatch& batch = micro_batches_.front();
  batch.number = input.pass;
  check_context().layer = static_cast<int>(layer_.expert_layer);
  check_context().micro_batch = input.pass;
  runner.begin_step(input.step);
  runner.mix(step, batch, layer_);
  DispatchHandle routed = runner.begin_ffn(step, batch, layer_);
  runner.finish_ffn(step, batch, std::move(routed), layer_);
  runner.settle(batch);
  check_context().layer = -1;
  check_context().micro_batch = 0;
  return trunk_.head().run(runner.hidden(), input.step.logit_rows, w.norm);
}

}  // namespace ferry
