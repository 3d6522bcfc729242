#pragma once

#include <optional>
#include <vector>

#include "kernels/host_rows.h"
#include "moe/token_dispatcher.h"
#include "runtime/model/block_step.h"
#include "runtime/model/operator_list.h"
#include "runtime/model/weights.h"

namespace ferry {

/// A mixture of experts: router, routed experts behind a TokenDispatcher, wherever they live, and a shared expert that works
/// meanwhile, where the model has one. Slices of a dense network take the same way, without a router. One thread at a time;
/// allocates nothing after construction.
class MixtureOfExperts {
 public:
  MixtureOfExperts(const ModelConfig& config, const BlockLimits& limits);

  /// Whether it reads its rows' codes.
  bool takes_codes(const MoeWeights& w, const TokenDispatcher& dispatcher) const;
  /// Router, if there is one; the rows leave for their experts; the shared expert. `layer_idx` is the model's.
  DispatchHandle begin(const BlockStep& step, const MoeWeights& w, int64_t layer_idx, TokenDispatcher& dispatcher);
  /// out [batch's rows, hidden_dim] = routed experts + gated shared expert. What it returns is still to be handed in, to the
  /// same end and before the next begin().
  std::optional<ExpertSumArgs> finish(const BlockStep& step, const MoeWeights& w, DispatchHandle routed,
                                      TokenDispatcher& dispatcher, MatrixView out);

  /// What its operators cost, those of routed experts on other ranks included.
  static void describe(const ModelConfig& config, OperatorList& list);

 private:
  /// Which products that read the block's rows.
  struct Gates {
    bool is_router = false, are_shared = false;
  };
  RouterTopkArgs choice_args(const MicroBatch& batch, const MoeWeights& w);
  void look_at_choice(const BlockStep& step, int64_t layer_idx);
  void multiply_gates(const BlockStep& step, const MoeWeights& w, Gates which);
  Activations shared_activations(const BlockStep& step);

  const MoePlan& plan_;
  bool is_shared_quantized_;
  Matrix router_logits_;                  // [T, num_experts]; empty without a router
  Mirror<int32_t> topk_idx_;              // [T, top_k]; of slices 0, 1, 2, … for every token
  Mirror<float> topk_weights_;            // [T, top_k]; likewise ones
  Matrix shared_activated_, shared_out_;  // [T, shared], [T, hidden_dim]; empty without a shared expert
  Matrix shared_gate_;                    // [T, 1]
  CodeBuffer shared_codes_;
};

}  // namespace ferry
