#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "runtime/base/types.h"
#include "runtime/vision/prompt_media.h"

namespace ferry {

/// Rows of a step whose embeddings are not those of their tokens.
struct GivenRows {
  int64_t first_row = 0;
  ConstMatrixView embeddings;  // [n, hidden_dim] in the run's dtype
};

/// The recurrent state of a slot as it is behind a row goes to a snapshot (RecurrentState::snapshot_bytes() bytes).
struct StateSave {
  int64_t end_row = 0;  // behind the row; where the DeltaNet's chunk form cuts, or the end of the sequence's rows
  int32_t slot = 0;
  Address<std::byte> snapshot;
};

/// A sequence's pictures and videos behind the tower.
struct EmbeddedMedia {
  std::shared_ptr<const PromptMedia> prompt;
  std::vector<std::shared_ptr<const Matrix>> embeddings;  // [tokens, hidden_dim] of each medium of the prompt
};

/// The rows of one step: pieces of prompts and decode rows of any number of sequences, back to back.
struct StepInput {
  std::span<const TokenId> token_ids;            // [T]
  std::span<const int32_t> positions;            // [3, T]: time, height and width of every token; equal for text
  std::span<const SequenceSpan> sequences;       // [num_sequences] cover the rows in order
  std::span<const int32_t* const> block_tables;  // [num_sequences] KV blocks
  std::span<const int32_t> state_slots;  // [num_sequences] rows of the recurrent state; the owner zeroes a new sequence's
  std::span<const int32_t> logit_rows;   // [R] rows whose logits are wanted
  std::span<const GivenRows> given;      // in order
  std::span<const StateSave> saves;      // by end_row
  int64_t delta_chunk = 64;              // piece of the DeltaNet's chunk form, tokens
};

/// A sequence's share of a step. `num_past` tokens are in its caches: KV blocks `block_table`, which must stay where it is, and
/// a row of the recurrent state.
struct SequenceRows {
  enum class Logits : uint8_t { kNone, kLast, kAll };  // which of the rows

  std::span<const TokenId> tokens;
  int64_t num_past = 0;
  const int32_t* block_table = nullptr;
  int32_t state_slot = 0;
  Logits logits = Logits::kNone;
  DeltaForm form = DeltaForm::kChunk;  // this and the next two as in SequenceSpan
  int64_t num_replayed = 0;
  int64_t num_held = 0;
  const EmbeddedMedia* media = nullptr;  // of the sequence; null: text only
  int64_t token_offset = 0;              // row i, whose position is that of token num_past + i, reads token num_past + i + this
};

/// Collects the rows of a step, sequence by sequence. Kept from step to step, so that nothing is allocated once it has seen the
/// largest.
class StepRows {
 public:
  void clear();
  void add(const SequenceRows& rows);
  /// Of the sequence that was added last: its state behind the first `num_tokens` of its rows.
  void save_state(int64_t num_tokens, Address<std::byte> snapshot);
  /// Valid until the next clear() or add().
  StepInput input(int64_t delta_chunk);

 private:
  void add_positions(const SequenceRows& rows);
  void add_given(const SequenceRows& rows, int64_t first_row);

  std::vector<TokenId> token_ids_;
  std::array<std::vector<int32_t>, 3> axes_;  // [T] positions
  std::vector<int32_t> positions_;            // [3, T]
  std::vector<GivenRows> given_;
  std::vector<StateSave> saves_;
  std::vector<SequenceSpan> sequences_;
  std::vector<const int32_t*> block_tables_;
  std::vector<int32_t> state_slots_;
  std::vector<int32_t> logit_rows_;
};

/// Rows [first_row, first_row + num_tokens) of a step, which go through a layer together.
struct MicroBatch {
  int64_t first_row = 0;
  int64_t num_tokens = 0;
  uint8_t number = 0;  // tells apart what goes through a layer in one step: the one or two, or the passes of an MTP layer
  // What the last block made of them is still to be added to the residual stream (layer_runner.h), and if it comes from
  // experts, perhaps still to be summed up.
  bool has_addend = false;
  std::optional<ExpertSumArgs> expert_sum;
  std::vector<SequenceSpan> sequences;  // their rows counted from first_row
  std::vector<const int32_t*> block_tables;
  std::vector<int32_t> state_slots;
  std::vector<StateSave> saves;  // by end_row, likewise
};

/// The step as one micro-batch, or as two if each gets at least `min_rows` rows (0: always one). While workers compute the
/// experts of one, the coordinator runs the attention of the other.
///
/// The cut lies between two sequences or within a prompt's piece, behind a multiple of delta_chunk of its rows, where the
/// DeltaNet's chunk form cuts anyway. So no bit of any row depends on it. The second half of a piece comes after the first in
/// every layer, whose keys and state it needs.
///
/// They are written into `batches`, which the caller keeps from step to step so that nothing is allocated; returns those in
/// use.
std::span<MicroBatch> make_micro_batches(const StepInput& input, int64_t min_rows, std::array<MicroBatch, 2>& batches);

}  // namespace ferry
