#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "moe/token_dispatcher.h"
#include "runtime/base/histogram.h"
#include "runtime/schedule/scheduler.h"

namespace ferry {

/// How many experts steps touch, which is how much of their weights they read.
struct TouchedExperts {
  int64_t layers = 0;   // of steps: each step adds its layers with experts
  int64_t experts = 0;  // that had a row, summed over these
};

/// Counts, from the totals since the start, what each step touched. Allocates at construction only.
class TouchCounter {
 public:
  explicit TouchCounter(const ExpertLoad& load);
  /// After a step: adds what it touched. [num_layers, num_experts] comparisons.
  void add_step(const ExpertLoad& load);
  const TouchedExperts& count() const { return count_; }

 private:
  std::vector<int64_t> seen_;  // [num_layers * num_experts] rows, up to the step before
  TouchedExperts count_;
};

/// How the requests of an engine fared since its start: what people watch a server by. Times are seconds, and their meanings
/// those of vLLM (v1/metrics/stats.py): queue is arrival to admission, prefill admission to first token, decode first to last
/// token, inference prefill and decode.
///
/// Each method is called by the engine's thread once a step or once a request, with the coordinator's mutex, and allocates
/// nothing. A copy is a snapshot.
class EngineStats {
 public:
  explicit EngineStats(const SchedulerOptions& options);

  using TimePoint = Sequence::TimePoint;

  /// A step was computed and committed, at `now`.
  void add_step(const StepPlan& plan, TimePoint now);
  /// A request has ended, and its owner is about to hear of it.
  void add_finished(const Sequence& sequence);
  /// One has ended that the scheduler knows nothing of any more.
  void add_lost(FinishReason reason) { ++count_of(reason); }
  /// One was refused since the queue is full.
  void add_rejected() { ++rejected; }

  // Counters
  int64_t rejected = 0;
  int64_t prompt_tokens = 0;                          // of requests that have their first token
  int64_t cached_tokens = 0;                          // of these, not computed for them
  int64_t generation_tokens = 0;                      // told to owners
  std::array<int64_t, kNumFinishReasons> finished{};  // by reason
  // As of the last step:
  TransportCount transport;
  TouchedExperts touched;
  int64_t used_swap_blocks = 0;

  // Histograms, of each request that has ended unless said otherwise
  Histogram prompt_lengths, completion_lengths, longest_completions, max_tokens, computed_prompt_tokens;  // tokens
  Histogram step_tokens;      // of each step: of prompts and of completions
  Histogram num_completions;  // that a client asked for at once
  Histogram num_preemptions;
  Histogram first_token_s;  // arrival to first token, of each request that has one
  // The bounds of those that follow are vllm_token_seconds() and vllm_request_seconds(), and finer ones below their first one.
  Histogram between_tokens_s;  // of each step that gave a sequence tokens, but its first: since the last one that did
  Histogram per_token_s;       // decode time by tokens but the first
  Histogram total_s, queue_s, inference_s, prefill_s, decode_s;

  int64_t& count_of(FinishReason reason) { return finished[static_cast<std::size_t>(reason)]; }
  int64_t count_of(FinishReason reason) const { return finished[static_cast<std::size_t>(reason)]; }

 private:
  void add_siblings(const Sequence& sequence);
};

/// vLLM's bounds for seconds between tokens and of whole requests (v1/metrics/loggers.py).
const std::vector<double>& vllm_token_seconds();
const std::vector<double>& vllm_request_seconds();

/// 1, 2, 5, 10, 20, … up to `most`: vLLM's bounds for tokens (v1/metrics/buckets.py).
std::vector<double> token_bounds(int64_t most);

}  // namespace ferry
