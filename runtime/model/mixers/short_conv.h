#pragma once

#include <vector>

#include "runtime/model/block_step.h"
#include "runtime/model/mixers/state_waves.h"
#include "runtime/model/operator_list.h"
#include "runtime/model/weights.h"

namespace ferry {

/// The gated short convolution: out_proj(C * conv(B * X)). What it remembers of a sequence is the convolution's history alone.
/// Source: transformers 5.17.0, models/lfm2/modeling_lfm2.py. One thread at a time; run() allocates nothing.
class ShortConvMixer {
 public:
  ShortConvMixer(const ModelConfig& config, const BlockLimits& limits);

  /// out [batch's rows, hidden_dim]; updates state layer `state_layer`.
  void run(const BlockStep& step, const ShortConvWeights& w, int state_layer, MatrixView out);

  /// Whether it reads its rows' codes.
  bool takes_codes() const { return is_quantized_; }
  /// What its operators cost.
  static void describe(const ModelConfig& config, OperatorList& list);

 private:
  void convolve(const BlockStep& step, const CausalConv1dArgs& args, int state_layer);

  const ShortConvPlan& plan_;
  bool is_quantized_;
  Matrix bcx_;                          // [T, 3 * channels]
  Matrix gated_, conv_out_;             // [T, channels]
  std::vector<const std::byte*> held_;  // [num_sequences]
  std::vector<std::byte*> states_;      // [num_sequences]
  CodeBuffer out_codes_;
  StateWaves waves_;  // where states are saved, and what each has of the above
  std::vector<std::byte*> wave_states_;
};

}  // namespace ferry
