#pragma once

#include <span>
#include <vector>

#include "runtime/model/layer_runner.h"

namespace ferry {

/// The last norm and lm_head, for the rows of a step whose logits are wanted. One thread at a time; allocates nothing after
/// construction.
class OutputHead {
 public:
  /// `weights` and `runner` outlive it.
  OutputHead(const ModelConfig& config, const TrunkWeights& weights, const LayerRunner& runner, DType dtype,
             int64_t max_logit_rows);

  /// Logits [rows.size(), vocab] of those rows of `hidden`, normed by `norm`; valid until the next call.
  ConstMatrixView run(ConstMatrixView hidden, std::span<const int32_t> rows, const Array<float>& norm);
  /// [rows.size(), hidden_dim] what the last run() multiplied: its rows behind the norm. Valid until the next call.
  ConstMatrixView normed() { return rows_.top(num_rows_); }

 private:
  const TrunkWeights& weights_;
  const LayerRunner& runner_;
  int64_t num_rows_ = 0;
  Matrix rows_;       // [R, hidden_dim]
  CodeBuffer codes_;  // of them
  Matrix logits_;     // [R, vocab]
};

}  // namespace ferry
