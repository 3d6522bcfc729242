#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/link.h"
#include "moe/merged_reply_writer.h"
#include "profiler/run_account.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/expert_holder.h"
#include "runtime/fault/fault_injector.h"
#include "runtime/merge_trial.h"
#include "runtime/merge_window.h"
#include "runtime/options/sharing_options.h"
#include "runtime/trace/trace_worker.h"

namespace ferry {

/// A worker's conversations with its coordinators, of which there may be several, each over a link of its own: it answers their
/// rows in the order in which they come, those of one layer that wait together in one go, and takes assignments. It knows steps
/// and sources of tokens, no requests. One thread.
class ExpertServer {
 public:
  /// Whether this rank should go, asked now and then; empty: it never should. Coordinators give others its experts first.
  using WantsToLeave = std::function<bool()>;
  struct Options {
    std::chrono::milliseconds peer_timeout{30000};  // as of the whole job
    ClockSkew clock_skew;
    WantsToLeave wants_to_leave;
    std::vector<PlannedFault> faults;
    WaitToMerge wait_to_merge = WaitToMerge::kAuto;
  };
  /// All outlive this.
  ExpertServer(ExpertShelf& shelf, LinkHub& hub, Options options);
  ~ExpertServer();
  ExpertServer(const ExpertServer&) = delete;
  ExpertServer& operator=(const ExpertServer&) = delete;

  /// From now on it answers `source` by `holder`, as `rank`; they outlive the conversation.
  void begin(Rank rank, Link& source, ExpertHolder& holder);
  bool has_conversations() const { return !sessions_.empty(); }

  /// How a conversation ended.
  struct Ended {
    Link* source = nullptr;
    bool are_ranks_lost = false;  // with a goodbye: who leaves should wait for no other rank
    // {kFailedPrecondition} if the goodbye says that this rank cannot stay; without one {kUnavailable} if the coordinator is
    // lost, {kDeadlineExceeded} if it is silent for much longer than the timeout, {kInternal} if it sends what cannot be read.
    std::optional<Error> error;
  };
  /// Serves until a conversation has ended, or until `until`. There is one.
  std::optional<Ended> serve(Deadline until);

 private:
  struct Inbox {
    AlignedBuffer bytes;
    std::unique_ptr<PendingOp> receive;
  };
  struct Message {
    WireHeader header;
    std::span<const std::byte> bytes;
    uint64_t begun = 0, arrived = 0;  // ticks between which it was awaited
  };
  struct Session;

  template <class Act>
  void guard(Session& session, Act&& act);
  std::optional<Ended> take_ended();
  void drop_receive(Session& session) const;
  Session* next_message() const;
  Deadline next_deadline(Deadline until) const;
  void collect(Deadline deadline);
  bool is_held(const Session& session, Deadline now) const;
  void note_rows(Session& session, Deadline now);
  void receive(Session& session, uint64_t begun);
  void check_silence();
  void tend(Session& session);
  void notify(Session& session, WireKind kind);
  void handle(Session& session);
  RequestView read_rows(Session& session);
  std::vector<Session*> waiting_with(Session& session);
  void answer(Session& session);
  void answer_together(std::span<Session* const> sessions);
  void assign(Session& session);
  void reply(Session& session, std::span<const std::byte> message);
  void send(Session& session, std::span<const std::byte> message, int tag);

  ExpertShelf& shelf_;
  LinkHub& hub_;
  const Options options_;
  const std::chrono::milliseconds idle_timeout_;
  RunAccount run_account_;
  std::optional<FaultInjector> faults_;      // of this rank, from its first conversation on
  std::optional<MergedReplyWriter> merged_;  // made when it is first needed
  MergeWindow window_;
  MergeTrial trial_;
  std::vector<std::unique_ptr<Session>> sessions_;
  int num_sessions_ = 0;  // that there ever were
};

}  // namespace ferry
