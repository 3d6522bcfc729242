#pragma once

#include "runtime/model/block_step.h"
#include "runtime/model/operator_list.h"
#include "runtime/model/weights.h"

namespace ferry {

/// A feed-forward network that every token passes: down(silu(gate(x)) * up(x)), of a model that has mixtures beside or whose
/// networks cannot be sliced. One thread at a time; run() allocates nothing.
class DenseFfn {
 public:
  DenseFfn(const ModelConfig& config, const BlockLimits& limits);

  /// out [batch's rows, hidden_dim]
  void run(const BlockStep& step, const DenseWeights& w, MatrixView out);

  /// Whether it reads its rows' codes.
  bool takes_codes() const { return is_quantized_; }
  /// What its operators cost.
  static void describe(const ModelConfig& config, OperatorList& list);

 private:
  bool is_quantized_;
  Matrix activated_;  // [T, intermediate_dim]
  CodeBuffer codes_;
};

}  // namespace ferry
