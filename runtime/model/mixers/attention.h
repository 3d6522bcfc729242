#pragma once

#include "kernels/host_rows.h"
#include "runtime/model/block_step.h"
#include "runtime/model/operator_list.h"
#include "runtime/model/weights.h"

namespace ferry {

/// The attention mixer: q (with its gate, where there is one), k, v; head norms; rotary positions; causal attention over the
/// cache; sigmoid gate; output projection. One thread at a time; run() allocates nothing.
class AttentionMixer {
 public:
  AttentionMixer(const ModelConfig& config, const BlockLimits& limits);

  /// Before a step's first layer: the rotation of each of its rows.
  void begin_step(const StepInput& input);
  /// out [batch's rows, hidden_dim]; appends to cache layer `kv_layer`.
  void run(const BlockStep& step, const AttentionWeights& w, int kv_layer, MatrixView out);

  /// Whether it reads its rows' codes.
  bool takes_codes() const { return is_quantized_; }
  /// What its operators cost.
  static void describe(const ModelConfig& config, OperatorList& list);

 private:
  void norm_and_rotate(const BlockStep& step, const AttentionWeights& w, MatrixView query, MatrixView q, MatrixView k);

  const AttentionPlan& plan_;
  const NormPlan& norm_;
  DType dtype_;
  bool is_quantized_;
  Matrix q_and_gate_;         // [T, num_heads * 2 * head_dim] per head query, then gate; unused without a gate
  Matrix q_, attention_out_;  // [T, num_heads * head_dim]
  Matrix k_, v_;              // [T, num_kv_heads * head_dim]
  Mirror<float> cos_, sin_;   // [T, rotary_dim / 2]
  CodeBuffer out_codes_;
};

}  // namespace ferry
