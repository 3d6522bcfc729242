#pragma once

#include <vector>

#include "runtime/model/block_step.h"
#include "runtime/model/mixers/state_waves.h"
#include "runtime/model/operator_list.h"
#include "runtime/model/weights.h"

namespace ferry {

/// The gated DeltaNet mixer: projections, short convolution, gated delta rule, gated norm, output projection. One thread at a
/// time; run() allocates nothing.
class GatedDeltaMixer {
 public:
  GatedDeltaMixer(const ModelConfig& config, const BlockLimits& limits);

  /// out [batch's rows, hidden_dim]; updates state layer `state_layer`.
  void run(const BlockStep& step, const GatedDeltaWeights& w, int state_layer, MatrixView out);

  /// Whether it reads its rows' codes.
  bool takes_codes() const { return is_quantized_; }
  /// What its operators cost.
  static void describe(const ModelConfig& config, OperatorList& list);

 private:
  void find_states(const BlockStep& step, int state_layer);
  GatedDeltaMixArgs mix_args(const BlockStep& step, const GatedDeltaWeights& w);
  void mix_in_waves(const BlockStep& step, const GatedDeltaMixArgs& args, int state_layer);
  void hold_rows(const BlockStep& step, int state_layer);

  const GatedDeltaPlan& plan_;
  float norm_eps_;
  bool is_quantized_;
  Matrix qkv_, conv_out_;                    // [T, conv_channels]
  Matrix z_, delta_out_;                     // [T, value_dim]
  Matrix a_gate_, b_gate_;                   // [T, num_v_heads]
  Matrix decay_, beta_;                      // [T, num_v_heads] f32
  std::vector<std::byte*> conv_states_;      // [num_sequences]
  std::vector<float*> delta_states_;         // [num_sequences]
  std::vector<const std::byte*> held_conv_;  // [num_sequences]
  std::vector<HeldDeltaRows> held_delta_;    // [num_sequences]
  CodeBuffer out_codes_;
  StateWaves waves_;  // where states are saved, and what each has of the above
  std::vector<std::byte*> wave_conv_states_;
  std::vector<float*> wave_delta_states_;
};

}  // namespace ferry
