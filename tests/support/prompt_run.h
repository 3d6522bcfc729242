#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace ferry::test {

/// One sequence's rows in a step of an EngineDriver.
struct Piece {
  int32_t sequence = 0;  // 0 ‥ max_seqs-1; also its slot
  std::span<const TokenId> tokens;
  DeltaForm form = DeltaForm::kChunk;  // decoding takes the recurrent form
  int64_t num_replayed = 0;            // of what the sequence's last piece held back, see SequenceSpan
  int64_t num_held = 0;                // last tokens, which the sequence forgets again
};

/// Steps an engine by hand: no scheduler, no sampler. Sequences own a fixed share of the KV blocks each.
class EngineDriver {
 public:
  explicit EngineDriver(Engine& engine);

  /// Forgets what `sequence` has seen.
  void reset(int32_t sequence);
  /// Appends the pieces to their sequences in one step. Returns the logits of all rows, [rows][vocab].
  std::vector<std::vector<float>> step(std::span<const Piece> pieces, const Tap* tap = nullptr);
  /// Runs a prompt in the pieces that serving would use; the logits of all rows.
  std::vector<std::vector<float>> prompt(int32_t sequence, std::span<const TokenId> tokens, const Tap* tap = nullptr);

 private:
  Engine& engine_;
  std::vector<std::vector<int32_t>> blocks_;  // [max_seqs] of each sequence
  std::vector<int64_t> num_past_;             // [max_seqs]
};

/// What a prompt leaves behind, values as f32, rows one after another, under the names that `ferry dump` uses: "logits",
/// "hidden.K", "layers.N.topk_weights", "recurrent_state.N".
struct PromptTrace {
  std::map<std::string, std::vector<float>> values;
  std::map<int64_t, std::vector<int32_t>> topk_ids;  // by layer, [n * top_k]
};

/// The engine must have been made with LogitRows::kAll.
PromptTrace trace_prompt(Engine& engine, std::span<const TokenId> tokens);

}  // namespace ferry::test
