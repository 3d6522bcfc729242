#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "moe/given_placement.h"
#include "profiler/capture.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/schedule/cached_prefix.h"
#include "runtime/schedule/draft_count.h"
#include "runtime/schedule/request.h"
#include "runtime/schedule/request_state.h"

namespace ferry {

class Engine;
class EngineStats;
class ExpertRecord;
class MediaIntake;
class StepSink;
struct ModelInfo;
struct WorkerReport;

/// Times of one request, ns on the steady clock's scale.
struct RequestTimings {
  int64_t queue_ns = 0;        // arrival to first scheduled
  int64_t first_token_ns = 0;  // arrival to first token
  int64_t total_ns = 0;        // arrival to finish
};

/// What a request's owner hears: some tokens, then exactly one event with finish_reason != kNone.
struct GenerateEvent {
  std::vector<TokenId> token_ids;       // new since the last event
  std::string text;                     // new text; always whole UTF-8 characters
  std::vector<TokenLogprobs> logprobs;  // of token_ids, if they were asked for
  FinishReason finish_reason = FinishReason::kNone;
  // With the first event that has tokens, or else the last one:
  std::vector<TokenLogprobs> prompt_logprobs;  // of the prompt's tokens but the first, if they were asked for
  // With the first event that has tokens, and the last one:
  int32_t cached_tokens = 0;  // of the prompt's, that were not computed for this request
  // With the last event only:
  std::string stop;                // the stop string that ended it, else empty
  std::optional<TokenId> stop_id;  // the request's own stop id that ended it; absent for the checkpoint's
  std::string request_id;          // what the owner or the coordinator called it
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;
  RequestTimings timings;
  std::optional<Error> error;  // set when finish_reason is kError
};

/// Called on the engine's thread: must not block and must not call the coordinator. If it throws std::bad_alloc its request
/// ends with kError, and no other.
using EventSink = std::function<void(const GenerateEvent&)>;

/// What anybody may know of an open request: not whose it is, nor what it says.
struct OpenRequestSight {
  uint64_t number = 0;  // grows in order of acceptance
  RequestState state = RequestState::kQueued;
  double age_s = 0;           // since it arrived
  int64_t prompt_tokens = 0;  // once the engine's thread has it
  int64_t cached_tokens = 0;  // of the prompt's, not computed for it; as all below as of the last step
  int64_t computed_tokens = 0;
  int64_t generated_tokens = 0;
};

struct EngineLoad {
  int32_t running_requests = 0;
  std::array<int32_t, kNumRequestStates> requests{};  // by RequestState
  int32_t waiting_requests = 0;                       // in the queue, or preempted
  int32_t preempted_requests = 0;                     // of these
  int32_t max_running_requests = 0;
  int32_t max_waiting_requests = 0;
  int32_t max_drafts = 0;  // of a sequence in a step
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_used = 0;
  int64_t kv_block_tokens = 0;  // of one block
  bool has_prefix_cache = false;
  int32_t accounts = 0;       // that have open requests, where they take turns
  int64_t prefill_limit = 0;  // rows of prompts that a step may have while sequences decode; 0: no bound
  int64_t preemptions = 0;    // since start, as all below
  int64_t lost_slots = 0;     // of these, for a request of a better priority, or of an account with fewer slots
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // processed, again what was preempted and is computed anew
  int64_t generated_tokens = 0;
  DraftCount drafts;
  DraftTime draft_time;
  PrefixCacheLoad prefix_cache;
  double balancedness = 1.0;  // mean over ranks / max over ranks of routed tokens, averaged over layers
};

/// Rank 0's outer half: the bounded door between many callers and the one thread that steps the engine.
///
/// Any thread may call any method. Every accepted request ends with one final event, also when the engine fails.
class Coordinator {
 public:
  /// Requests' times and deadlines are of `clock`. Both outlive this.
  explicit Coordinator(Engine& engine, Clock& clock = real_clock());
  /// Stops at once; open requests end with kAborted.
  ~Coordinator();

  /// Accepts a request, perhaps after its first events were told. One without an id gets one that cannot be guessed. Throws
  /// Error{kInvalidArgument} for a bad prompt or parameters and for an id that its owner has given to another open request,
  /// {kResourceExhausted} when the queue is full, {kUnavailable} when draining or failed.
  RequestNumber submit(Request request, EventSink sink);

  /// Ends a request before its next step; false if it is not open (any more).
  bool abort(RequestNumber number);
  /// The same for the request that `owner` calls `request_id`, or for siblings that share it; other owners' requests are out of
  /// its reach.
  bool abort(const std::string& owner, const std::string& request_id);

  /// Accepts nothing more and returns when the open requests are done or `timeout` has passed (then they are aborted).
  void drain(std::chrono::milliseconds timeout);

  /// A rank was lost: the engine stops and every open request ends with Error{kUnavailable} and this reason.
  void fail(const std::string& reason);

  /// Runs `action` on the engine's thread between two steps and returns when it is done, with its exception if it threw one.
  /// Throws Error{kUnavailable} if the engine has failed or stops before.
  void between_steps(const std::function<void(Engine&)>& action);
  /// Moves experts to where `given` has them, beside the steps, and returns the placement's epoch once steps run by it; `epoch`
  /// is that of the placement it was made from, 0: any. Waits as long as `is_given_up`, which it asks now and then, says no.
  /// Throws Error{kInvalidArgument} as lay_out_given() and require_seats() do; {kFailedPrecondition} where experts cannot move,
  /// or a worker cannot hold what it was to; {kAborted} if another change of placement is in its way or a worker is lost
  /// meanwhile; {kCancelled} if it was given up; {kUnavailable} as between_steps() does. Then all is as it was.
  uint32_t set_placement(const GivenPlacement& given, uint32_t epoch, const std::function<bool()>& is_given_up);
  /// Who gets finished captures (Engine::trace()) and who hears why one was given up, on the engine's thread; must be quick.
  /// Set before the first one starts. When setting others (or none) returns, the old ones are not running.
  void set_on_capture(std::function<void(Capture)> on_capture, std::function<void(const std::string& why)> on_give_up);

  /// Who hears of every step, and of those that TraceSession::sample_steps() keeps; null: nobody. When setting another one
  /// returns, the old one is not running.
  void set_step_sink(StepSink* sink);

  EngineLoad load() const;
  /// The `most` oldest open requests.
  std::vector<OpenRequestSight> oldest_requests(std::size_t most) const;
  /// How requests fared so far.
  EngineStats stats() const;
  /// How the workers stand.
  WorkerReport workers() const;
  /// What was asked of experts, and who holds them.
  const ExpertRecord& experts() const;
  const ModelInfo& model_info() const;
  /// As Engine's.
  const MediaIntake& require_media() const;
  /// What a prompt may have at most; a longer one is refused.
  int64_t max_prompt_tokens() const;
  /// That, and why, in words.
  std::string allowed_prompt() const;

  /// Why the engine stopped for good (a lost worker), empty while healthy. Every open request has its last event by then.
  std::optional<Error> failure() const;
  /// Called once, on the engine's thread, before any request hears of a failure; must not call the coordinator. When setting
  /// another one (or none) returns, the old one is not running.
  void set_on_failure(std::function<void()> on_failure);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
