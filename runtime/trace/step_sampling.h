#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/link.h"
#include "moe/remote/worker_seats.h"
#include "moe/token_dispatcher.h"
#include "profiler/archive/kept_step.h"
#include "profiler/archive/step_judge.h"
#include "runtime/trace/load_marks.h"
#include "runtime/trace/step_marks.h"
#include "runtime/trace/trace_wire.h"

namespace ferry {

/// Rank 0's side of what is always on: one step in `every` is recorded in detail on all ranks, and it and those that stand
/// out are collected from all of them while steps go on.
///
/// Workers learn that a step is recorded in detail from the rows of it (kDetailed): no message is sent for that. After a step
/// that is kept each worker gets one command and answers with what its rings hold of the step. Nobody waits for the answer: it
/// is looked for after later steps. Over a group, where a look is a wait, it is waited for after the next one, whose rows were
/// answered behind it. At most one kept step is under way and one waits for its turn; those that are not collected are counted.
///
/// Used by the thread that steps the engine.
class StepSampling {
 public:
  static constexpr int64_t kStepsBefore = 8;  // that an anomaly is kept with

  using Workers = std::function<std::vector<Link*>()>;

  /// `hub` is null when this process is alone; `workers` as TraceSession's, whose links live while is_pending(). `info` is the
  /// run's and, as the others, outlives this.
  StepSampling(int64_t every, LinkHub* hub, Workers workers, TokenDispatcher& dispatcher, const CaptureInfo& info,
               int32_t num_threads, std::chrono::milliseconds timeout);
  ~StepSampling();
  StepSampling(const StepSampling&) = delete;
  StepSampling& operator=(const StepSampling&) = delete;

  /// Before a step is planned; again for the same step if there was nothing to compute.
  void begin_step(int64_t step);
  /// The step was computed. `marks` were not yet told of it.
  void end_step(const StepFacts& facts, const LoadMarks& marks);
  /// Between steps: asks workers for a step that is to be kept, and looks for their answers; where no step was run, it waits a
  /// little for them. `changes` are the run's, by time. True while one is under way. Throws Errors of links that fail together.
  bool work(bool ran_step, const std::deque<WorkerChangeFacts>& changes);
  /// A worker came to stand otherwise: the next step is kept for it.
  void note_change() { has_change_ = true; }
  /// A kept step, once, when it is complete.
  std::optional<KeptStep> take() { return std::exchange(kept_, std::nullopt); }
  /// Steps that were to be kept and will not be, since the last time.
  CountsByReason take_left_out() { return std::exchange(left_out_, {}); }

  /// Whether a worker has yet to answer.
  bool is_pending() const;
  /// Returns when all have. Throws Errors of links that fail together; another link fails if it takes longer than the timeout.
  void settle();
  /// Memory ran out: gives up the step that is under way.
  void give_up();
  /// Nobody will answer any more, since all links have failed.
  void drop();

 private:
  /// What a worker was asked, and what it answered.
  struct Ask {
    Rank rank;
    Link* link = nullptr;
    TraceCommand command;
    std::unique_ptr<PendingOp> send, receive;  // receive: null once it has answered, or is lost
    std::vector<std::byte> room;               // for the reply
    std::string boot_id;
    std::vector<std::byte> bytes;
    std::string complaint;
    bool is_of_this = false;  // step; else of an earlier one, which was not waited for
  };
  struct Wanted {
    KeptFor why = KeptFor::kSample;
    StepFacts facts;
    int64_t first = 0;                         // step that is kept with it
    std::vector<std::vector<int64_t>> tokens;  // [layer][expert] of these steps, empty where it is not known
    int64_t epoch_ns = 0;                      // CLOCK_REALTIME at facts.end
  };

  void leave_out(KeptFor why) { ++left_out_[static_cast<std::size_t>(why)]; }
  void want(KeptFor why, const StepFacts& facts, const LoadMarks& marks);
  int64_t first_marked(int64_t step, const LoadMarks& marks, std::vector<std::vector<int64_t>>& tokens) const;
  void begin();
  void ask(Ask& ask, Link* link);
  void look(Deadline deadline);
  void take_answer(Ask& ask, Deadline deadline);
  bool has_answers() const;
  void finish(const std::deque<WorkerChangeFacts>& changes);
  Capture collect(const Wanted& wanted) const;
  void describe(const Wanted& wanted, Capture& capture, const std::deque<WorkerChangeFacts>& changes) const;

  const int64_t every_;
  LinkHub* const hub_;
  const Workers workers_;
  TokenDispatcher& dispatcher_;
  const CaptureInfo& info_;
  const int32_t num_threads_;
  const std::chrono::milliseconds timeout_;
  StepJudge judge_;
  StepMarks marks_;
  int64_t detailed_step_ = -1;
  std::vector<std::vector<int64_t>> tokens_before_;  // of the detailed step
  bool has_change_ = false;
  std::optional<Wanted> wanted_;  // not yet begun
  std::optional<Wanted> under_way_;
  Deadline begun_{};         // of under_way_
  int64_t steps_since_ = 0;  // likewise
  std::deque<Ask> asks_;     // by worker; what is under way stays where it is
  int64_t num_commands_ = 0;
  std::optional<KeptStep> kept_;
  CountsByReason left_out_{};
};

}  // namespace ferry
