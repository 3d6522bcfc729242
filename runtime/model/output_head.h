#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/argmax_screen.h"
#include "runtime/model/layer_runner.h"

namespace ferry {

/// The last norm and lm_head, for the rows of a step whose logits are wanted. One thread at a time; allocates nothing after
/// construction.
///
/// With limits.screens_lm_head lm_head waits until it is known what is wanted: all logits, or no more than tokens.
class OutputHead {
 public:
  /// `weights` and `runner` outlive it. Throws Error{kInvalidArgument} where lm_head cannot be screened and is to be.
  OutputHead(const ModelConfig& config, const TrunkWeights& weights, const LayerRunner& runner, DType dtype,
             const DecoderLimits& limits);

  /// Logits [rows.size(), vocab] of those rows of `hidden`, normed by `norm`; valid until the next call. Where pending() has
  /// the head they are not there before compute().
  ConstMatrixView run(ConstMatrixView hidden, std::span<const int32_t> rows, const Array<float>& norm);
  /// This head if the last run() left its logits to be computed, else null.
  OutputHead* pending() { return is_pending_ ? this : nullptr; }
  void compute();
  /// In place of compute(): for each r of `rows` ids[r] as argmax() makes it of the first num_cols logits of row r. Returns
  /// false, and does nothing, where that would take no less time.
  bool find_tokens(std::span<const int32_t> rows, int64_t num_cols, int32_t* ids);
  /// [rows.size(), hidden_dim] what the last run() multiplied: its rows behind the norm. Valid until the next call.
  ConstMatrixView normed() { return rows_.top(num_rows_); }

 private:
  const TrunkWeights& weights_;
  const LayerRunner& runner_;
  int64_t num_rows_ = 0;
  bool is_pending_ = false;
  Matrix rows_;                           // [R, hidden_dim]
  CodeBuffer codes_;                      // of them
  Matrix logits_;                         // [R, vocab]
  std::unique_ptr<ArgmaxScreen> screen_;  // null: none
};

}  // namespace ferry
