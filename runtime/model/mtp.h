#pragma once

#include <array>
#include <span>
#include <vector>

#include "runtime/model/trunk.h"

// Multi-token prediction: one more decoder layer that guesses the token after the next. For position p it reads the embedding e
// of token p + 1 and the trunk's hidden row h of position p behind the final norm:
//
//   u = fc([norm_e(e), norm_h(h)]);  h' = norm(layer(u));  logits of token p + 2 = lm_head(h')
//
// The layer attends to the pairs of the positions before, whose keys and values are in a KV layer of its own; positions are the
// trunk's. A further guess takes h' in place of h. Follows vLLM's Qwen3-Next MTP.

namespace ferry {

/// The pairs of a step: one for each of its rows.
struct MtpInput {
  const StepInput& step;          // token_ids are those behind the rows' positions; logit_rows as in the trunk
  ConstMatrixView hidden;         // [>= T, hidden_dim] normed rows of the trunk, or of the MTP layer
  std::span<const int32_t> rows;  // [T] each pair's row of `hidden`
  uint8_t pass = 0;               // of those in the trunk's step
};

/// One thread at a time; allocates nothing after construction.
class MtpLayer {
 public:
  /// Works with the trunk's runner and head, between its steps. `weights` has an MTP layer; all outlive it.
  MtpLayer(const ModelConfig& config, const TrunkWeights& weights, Trunk& trunk, DType dtype);

  /// Writes the trunk's hidden rows of the step that it has just run, behind the final norm, to `out` [num_rows, hidden_dim],
  /// before anything else is run.
  void copy_hidden(MatrixView out);

  /// Logits [R, vocab] of the pairs that are asked for, in the run's dtype, valid until the next call of this or the trunk and
  /// there unless pending().
  /// Appends every pair to the MTP layer's KV layer. Throws what the dispatcher throws.
  ConstMatrixView run(const MtpInput& input, KvCache& kv_cache, RecurrentState& recurrent_state, TokenDispatcher& dispatcher);
  /// [R, hidden_dim] h' of these pairs; until then likewise.
  ConstMatrixView hidden() { return trunk_.head().normed(); }
  /// The head that is still to compute the logits, or null.
  OutputHead* pending() { return trunk_.head().pending(); }

 private:
  const TrunkWeights& weights_;
  Trunk& trunk_;
  LayerRef layer_;
  int64_t hidden_dim_;
  Matrix pairs_;  // [T, 2 * hidden_dim]
  std::array<MicroBatch, 2> micro_batches_;
};

}  // namespace ferry
