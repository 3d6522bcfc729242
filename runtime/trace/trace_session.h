#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/link.h"
#include "moe/remote/worker_seats.h"
#include "moe/routing/routing_recorder.h"
#include "moe/token_dispatcher.h"
#include "profiler/capture.h"
#include "profiler/clock_sync.h"
#include "runtime/trace/load_marks.h"
#include "runtime/trace/step_sampling.h"
#include "runtime/trace/trace_wire.h"

namespace ferry {

/// When to record, and how much.
struct TracePlan {
  TraceLevel level = TraceLevel::kOperators;
  int64_t max_bytes = int64_t{16} << 20;  // of spans, per rank: half a million
  int64_t delay_steps = 0;                // steps to let pass first
  int64_t num_steps = 0;                  // then record so many; 0: until stop()
  bool routing = false;                   // record what routers choose, too, in kRoutingBytesRecorded at most
};

/// Rank 0's side of captures: starts and stops all ranks between the same two steps, then fetches what they recorded, a piece
/// at a time so that steps go on meanwhile, and brings the clocks together.
///
/// Used by the thread that steps the engine, between steps. A rank that is lost meanwhile is not in the capture; where its loss
/// is one of all links, its Error is thrown as it is. Whatever else goes wrong (memory or threads run out) ends the capture on
/// all ranks, and nothing more.
class TraceSession {
 public:
  /// Links of the workers, null for those that are not there; asked for when a capture begins. They live until it is complete.
  using Workers = std::function<std::vector<Link*>()>;

  /// `hub` is null when this process is alone.
  TraceSession(LinkHub* hub, Workers workers, TokenDispatcher& dispatcher, CaptureInfo info, int32_t num_threads,
               std::chrono::milliseconds timeout);

  /// Throws Error{kFailedPrecondition} while another capture runs, waits for its steps or is being fetched, and if routing is
  /// wanted of a model that has no router. Once it has thrown, nothing was started.
  void start(const TracePlan& plan);
  /// Ends the capture that runs (or was still waiting for its steps, which gives an empty one). Throws
  /// Error{kFailedPrecondition} if there is none. If it throws anything but an Error, the capture is given up.
  void stop();
  /// Takes the last steps, at the levels that were on: those that every rank's rings still hold, and no other. Their expert
  /// counts and preemptions are their own.
  void save_snapshot();
  /// For the moment after a loss: ends what runs, or takes the last steps, with this rank's spans alone.
  void abandon_workers();

  /// From now on one step in `every` is kept with all that ranks record of it, and those that stand out (StepSampling). Once.
  void sample_steps(int64_t every);
  /// Before a step is planned, and when it was computed: which is before work() hears of it.
  void begin_step(int64_t step);
  void end_step(const StepFacts& facts);
  /// A step that is kept, once, when it is complete.
  std::optional<KeptStep> take_kept_step() { return sampling_ ? sampling_->take() : std::nullopt; }
  /// Steps that were to be kept and will not be, since the last time.
  CountsByReason take_left_out() { return sampling_ ? sampling_->take_left_out() : CountsByReason{}; }
  /// Returns when no worker has anything to answer that it was asked for kept steps: before links go. Throws Errors of links.
  void settle();

  /// Between steps, and again and again while none runs: does a small piece of what is pending. `ran_step` says whether a
  /// step was run since the last call. True while more is to be fetched. Throws Errors of links only.
  bool work(bool ran_step);

  /// A worker came to stand otherwise, at `ticks`: captures of that time tell why.
  void note(const WorkerChange& change, uint64_t ticks);

  /// Of this run, for captures that start from now on.
  void set_roofs(double read_bytes_per_s, double flops_per_s);

  /// What the model's routers choose among; without it no routing can be recorded.
  void set_routing_shape(RoutingShape shape) { routing_shape_ = std::move(shape); }
  /// Records routing now; null: nothing does.
  RoutingRecorder* routing() { return state_ == State::kRecording && routing_ ? &*routing_ : nullptr; }

  /// Whether it uses no link.
  bool is_idle() const { return state_ == State::kIdle && !(sampling_ && sampling_->is_pending()); }
  /// The capture, once, when it is complete.
  std::optional<Capture> take();
  /// Why a capture that had started was given up, once; nothing if none was.
  std::optional<std::string> take_complaint() { return std::exchange(complaint_, std::nullopt); }

 private:
  enum class State { kIdle, kDelayed, kRecording, kFetching, kComplete };

  struct Peer {
    Rank rank;
    Link* link = nullptr;  // null: lost
    std::string boot_id;
    std::vector<ClockExchange> exchanges;  // empty on the coordinator's host
    std::vector<std::byte> bytes;          // fetched so far
    std::size_t num_bytes = 0;             // of the whole
    std::string complaint;
  };

  void describe();
  void gather_peers();
  void describe_ranks();
  void describe_changes();
  void begin_recording();
  void end_recording();
  void begin_snapshot();
  bool advance(bool ran_step);
  bool sample(bool ran_step);
  void give_up();
  static void free_memory(Peer& peer);
  void begin_fetching(RankCapture own);
  void fetch_piece(Peer& peer);
  void finish();
  RankCapture decode(const Peer& peer) const;
  void sample_clocks(int count);
  void cut_to_held_steps();
  struct Asked;
  Asked prepare(TraceCommand command);
  TraceReply exchange(Link& link, const TraceCommand& command, std::vector<std::byte>* piece);
  static TraceReply take_reply(Link& link, Asked& asked, Deadline deadline);
  TraceReply lose(Peer& peer, const Error& error);
  void command_all(const TraceCommand& command);
  TraceReply command(Peer& peer, TraceCommand command, std::vector<std::byte>* piece = nullptr);

  LinkHub* const hub_;
  const Workers workers_;
  TokenDispatcher& dispatcher_;
  CaptureInfo info_;
  const int32_t num_threads_;
  const std::chrono::milliseconds timeout_;
  std::vector<Peer> peers_;
  LoadMarks marks_;
  std::optional<StepSampling> sampling_;
  std::deque<WorkerChangeFacts> changes_;  // the latest kMaxWorkerChanges
  RoutingShape routing_shape_;
  std::optional<RoutingRecorder> routing_;  // of the capture that runs
  bool is_snapshot_ = false;                // of capture_
  State state_ = State::kIdle;
  TracePlan plan_;
  int64_t steps_left_ = 0;  // of the delay, then of the recording
  std::chrono::steady_clock::time_point last_clock_sample_;
  Capture capture_;
  std::optional<std::string> complaint_;  // about the last capture, not yet taken
  int64_t num_commands_ = 0;
  std::vector<std::byte> receive_;  // a reply
};

}  // namespace ferry
