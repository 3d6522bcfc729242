#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/schedule/cached_prefix.h"
#include "runtime/schedule/policy.h"
#include "runtime/schedule/request.h"
#include "runtime/schedule/request_state.h"
#include "runtime/schedule/token_counts.h"

namespace ferry {

struct EmbeddedMedia;

/// When a request came to its stages, in ticks of the trace; 0: not yet.
struct TracedStages {
  uint32_t number = 0;  // by which the trace knows it
  uint64_t queued = 0, scheduled = 0, first_token = 0;
  int64_t num_preemptions = 0;  // that are over
};

/// What the sampler knows of a sequence, and says of its last step.
struct SampledTokens {
  TokenCounts counts;                          // where penalties need them
  std::vector<TokenLogprobs> logprobs;         // of the tokens that the last step chose, if they are asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // likewise of the prompt's from the second one on, as far as it was computed
  std::optional<Error> failure;                // why no token could be chosen
};

/// A request on its way through the engine. The scheduler owns it and alone changes it, but for `sampled`, `traced` and
/// `last_output`; its address stays the same from Scheduler::add until the owner of the taken sequence destroys it.
struct Sequence {
  using TimePoint = std::chrono::steady_clock::time_point;

  Request request;                    // max_tokens is already clipped to the context
  std::vector<TokenId> tokens;        // the prompt, then what was generated, a stop id included
  int64_t num_computed = 0;           // tokens whose keys and values are in the caches
  int64_t num_new = 0;                // last tokens, which the last commit appended
  int64_t num_replayed = 0;           // last of the computed tokens that the recurrent state does not hold yet: right drafts
  std::vector<TokenId> drafts;        // what may follow the tokens; right or wrong is found out by the next step
  int32_t slot = -1;                  // row of the recurrent state, from admission to the end, also while preempted, unless
                                      // somebody more urgent took it; else -1
  std::vector<int32_t> blocks;        // KV blocks of its first tokens, as many as its rows have needed so far; the first may be
                                      // others' as well
  std::vector<int32_t> saved_blocks;  // blocks of the swap space, while preempted; empty if it starts anew

  Seniority seniority;
  Seniority queue_place;       // seniority while it waits; one that loses its slot has it again
  int32_t account = 0;         // its number, under SchedulingPolicy::kFair
  int64_t admission_cost = 0;  // tokens of the prompt that had to be computed when it arrived, where the policy asks

  bool begins = true;              // its next rows are its first, or the first ones that are computed anew
  CachedPrefix cached;             // with which it began
  std::optional<PrefixLoad> load;  // what it waits for, or waited for, until it begins
  bool looked_in_file = false;     // for what the prefix cache has there of its prompt
  int64_t num_cached = 0;  // tokens of the prompt that were not computed for it, when it last began before its first token

  std::shared_ptr<const EmbeddedMedia> media;  // what the tower made of the request's; null without any, or until then

  TimePoint arrival;
  std::optional<TimePoint> first_scheduled;  // when it was admitted
  std::optional<TimePoint> first_token;
  std::optional<TimePoint> finished;

  std::optional<TimePoint> preempted;  // the last time
  int64_t num_preemptions = 0;
  SampledTokens sampled;                 // StepSampler's
  TracedStages traced;                   // RequestTrace's
  std::optional<TimePoint> last_output;  // EngineStats': when the last step that gave it tokens was over

  FinishReason finish_reason = FinishReason::kNone;
  bool ends_with_stop_id = false;      // tokens.back() is a stop id, which is not part of the text
  std::optional<TokenId> own_stop_id;  // that one, if it is the request's and not the checkpoint's
  bool abort_requested = false;        // the next plan drops it

  int64_t num_prompt() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t num_generated() const { return static_cast<int64_t>(tokens.size()) - num_prompt(); }
  /// Prompt and completion, as long as it can become.
  int64_t max_length() const { return num_prompt() + request.sampling.max_tokens; }
  /// Whether it has no rows in any step yet, though it may be admitted.
  bool waits_for_media() const { return request.media != nullptr && media == nullptr; }
  /// Of a finished sequence, which has no more rows.
  void let_go_of_media() { request.media.reset(), media.reset(); }
  bool in_prefill() const { return num_computed < num_prompt(); }
  /// Tokens that are known and not computed: 1 when it decodes.
  int64_t num_uncomputed() const { return static_cast<int64_t>(tokens.size()) - num_computed; }
  bool decodes() const { return num_uncomputed() == 1 && !in_prefill(); }

  RequestState state() const { return state_; }
  void become(RequestState next) {
    FERRY_CHECK(may_become(state_, next)) << "request " << request.id << ": " << request_state_name(state_) << " to "
                                          << request_state_name(next);
    state_ = next;
  }

 private:
  RequestState state_ = RequestState::kQueued;
};

}  // namespace ferry
