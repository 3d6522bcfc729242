#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "launch/sample.h"
#include "runtime/engine.h"
#include "runtime/schedule/draft_count.h"
#include "runtime/trace/request_trace.h"

namespace ferry {

/// Sequences that decoded side by side until they had enough tokens together, as a server would run them.
struct DraftRun {
  double prompt_seconds = 0;    // of the steps with prompts in them
  double seconds = 0;           // of the steps behind them, guessing included
  int64_t num_tokens = 0;       // that those gave
  int64_t num_steps = 0;        // of those
  int64_t touched_experts = 0;  // of those steps' rows: over all steps and layers, the different ones that were chosen
  DraftCount drafts;
  std::vector<std::vector<TokenId>> tokens;  // [num_sequences] all that were generated

  double tokens_per_s() const { return static_cast<double>(num_tokens) / seconds; }
};

/// Drives an engine through a scheduler of its own, with drafts or plainly. For the thread that steps the engine, while nobody
/// else does.
class DraftBench {
 public:
  explicit DraftBench(Engine& engine) : engine_(engine) {}

  /// Sequences of so many tokens that can run at once.
  int64_t max_sequences(int64_t tokens_per_sequence) const;

  /// Generates `decode_tokens` of each prompt, on average: ends with the step in which they have so many together, or in which
  /// the first one has twice as many. No text ends by itself. Prompts are of up to BenchOptions::kDecodePrompt tokens.
  DraftRun run(const std::vector<std::vector<TokenId>>& prompts, int64_t decode_tokens, Drafting drafting);

 private:
  struct Step;
  Step step(Scheduler& scheduler);
  int64_t touched_experts();

  Engine& engine_;
  RequestTrace trace_;
  std::vector<int64_t> expert_rows_;  // [layers x experts] when they were looked at last
};

/// What drafts gain: runs with and without, in turn.
struct DraftGain {
  Sample plain_tokens_per_s, tokens_per_s;
  Sample gain;                                            // of neighbouring runs; the median is the ratio of the two medians
  double prompt_gain = 0;                                 // of the time that the prompts' steps take, ratio of the medians
  double plain_touched_experts = 0, touched_experts = 0;  // of a layer in a step
  double tokens_per_step = 0;                             // of a sequence
  DraftCount drafts;                                      // of all runs
};

/// Runs once with and once without before it measures. Throws Error{kInternal} if drafts change a token, in any run.
DraftGain measure_drafts(DraftBench& bench, const std::vector<std::vector<TokenId>>& prompts, int64_t decode_tokens,
                         int64_t repetitions, int64_t num_expert_layers);

/// The first token that two runs of the same prompts do not have in common, as far as both have come.
struct TokenDifference {
  int64_t sequence, token;
};
std::optional<TokenDifference> first_difference(const DraftRun& x, const DraftRun& y);

}  // namespace ferry
