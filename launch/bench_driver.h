#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "moe/routing/routing_rows.h"
#include "runtime/engine.h"

namespace ferry {

/// Drives the engine without a scheduler: sequence s lives in slot s and in its own blocks. In the trace every prompt is a
/// request that arrives, is scheduled at once, and decodes until the next prompt takes its place.
class BenchDriver {
 public:
  /// `replay` may be null, else it is the engine's routing hook and outlives this.
  BenchDriver(Engine& engine, int64_t tokens_per_sequence, RoutingReplay* replay = nullptr);

  int64_t max_sequences() const;

  /// Computes tokens [past, past + count) of sequence `s`; the ids are a fixed function of place.
  void prefill(int64_t s, int64_t past, int64_t count);
  /// A whole prompt in the pieces that serving would use.
  void prompt(int64_t s, int64_t num_prompt);
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

  void begin_rows();
  void add_rows(int64_t s, int64_t past, int64_t count, DeltaForm form);
  HostLogits& forward(Phase phase);
  void end_request(TracedRequest& request);
  void note_experts(const std::vector<int64_t>& rows_before);
  std::vector<int64_t> expert_rows();

  Engine& engine_;
  RoutingReplay* const replay_;
  int64_t blocks_per_sequence_ = 0;
  std::vector<int32_t> blocks_;
  StepRows rows_;
  std::vector<TokenId> tokens_;          // of the rows that are being added
  std::vector<TracedRequest> requests_;  // by slot
  bool is_counting_ = false;
  int64_t num_experts_read_ = 0;
};

}  // namespace ferry
