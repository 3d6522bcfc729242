#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "moe/routing/routing_rows.h"
#include "profiler/run_account.h"
#include "runtime/engine.h"

namespace ferry {

/// Drives the engine without a scheduler: sequence s lives in slot s and in its own blocks. In the trace every prompt is a
/// request that arrives, is scheduled at once, and decodes until the next prompt takes its place.
///
/// Sequences begin behind a context, which all of them have in common and each in blocks of its own: computed once, copied, and
/// gone back to as often as need be. Tokens are numbered from the context's first one; ids are a fixed function of that number
/// and of the sequence.
class BenchDriver {
 public:
  /// Tokens that a sequence may hold, context included.
  struct Room {
    int64_t first_tokens = 0;    // sequence 0
    int64_t further_tokens = 0;  // each other one, at most first_tokens
  };
  /// `replay` may be null, else it is the engine's routing hook and outlives this.
  BenchDriver(Engine& engine, const Room& room, RoutingReplay* replay = nullptr);

  int64_t max_sequences() const;

  /// From here on the sequences 0 ‥ batch-1 begin behind `num_tokens` tokens, the first that sequence 0 would have. Throws
  /// Error{kResourceExhausted} if the host has no room for the states that it keeps, and Error{kInternal} if a sequence that
  /// goes back, or has a copy, does not compute the bits of one that was never anywhere else.
  void set_context(int64_t batch, int64_t num_tokens);
  int64_t context() const { return context_; }

  /// Sequence `s` holds the context and nothing else.
  void begin(int64_t s);
  /// The whole prompt of a sequence that has begun, in the pieces that serving would use.
  void prompt(int64_t s, int64_t num_prompt);
  /// begin() and a prompt to whose end go_back() returns.
  void kept_prompt(int64_t s, int64_t num_prompt);
  /// Makes the sequences 0 ‥ batch-1 what kept_prompt() had made of them, to the bit.
  void go_back(int64_t batch);
  /// One token of sequence `s`, which holds `past`. Like all steps it ends with the choice of a token for each sequence, that
  /// of the highest logit, as serving makes it; returns the logits.
  HostLogits& decode_alone(int64_t s, int64_t past);
  /// One token of each of the sequences 0 ‥ batch-1, which all hold `past` tokens.
  HostLogits& decode(int64_t batch, int64_t past);

  /// Runs `steps`, which calls the methods above, and returns how many experts the steps read: over all steps and layers, the
  /// distinct ones that were given rows.
  int64_t count_experts_read(const std::function<void()>& steps);

  /// Every request that is still open finishes now.
  void end_requests();

 private:
  struct TracedRequest {
    uint32_t number = 0;
    bool is_open = false;
    uint64_t first_token = 0;  // ticks
    uint32_t num_generated = 0;
  };

  /// Rows of a step: tokens [past, past + count) of sequence `text` in the place of sequence `s`.
  struct Piece {
    int64_t s = 0, text = 0;
    int64_t past = 0, count = 0;
    DeltaForm form = DeltaForm::kChunk;
  };

  int32_t* block_table(int64_t s);
  int64_t blocks_of(int64_t num_tokens) const;
  void prefill(int64_t s, int64_t begin, int64_t end, std::optional<int64_t> snapshot);
  void run_prompt(int64_t s, int64_t num_prompt, std::optional<int64_t> snapshot);
  void copy_context(int64_t batch);
  void check_context(int64_t batch);
  void begin_rows();
  void add_rows(const Piece& piece);
  HostLogits& forward(Phase phase);
  void end_request(TracedRequest& request);
  void note_experts(const std::vector<int64_t>& rows_before);
  std::vector<int64_t> expert_rows();

  Engine& engine_;
  RoutingReplay* const replay_;
  Room room_;
  std::vector<int32_t> blocks_;
  int64_t context_ = 0;                     // tokens
  std::optional<SnapshotSpace> snapshots_;  // of the context, then of each sequence behind its prompt
  StepRows rows_;
  std::vector<TokenId> tokens_;          // of the rows that are being added
  std::vector<TracedRequest> requests_;  // by slot
  RunAccount run_account_;               // of the threads of a captured run, as serving has it
  bool is_counting_ = false;
  int64_t num_experts_read_ = 0;
};

}  // namespace ferry
