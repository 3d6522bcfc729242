#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>

#include "comm/link.h"
#include "profiler/run_account.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/expert_holder.h"
#include "runtime/trace/trace_worker.h"

namespace ferry {

/// A worker's conversation with one coordinator, over one link: it answers rows, takes assignments, and leaves with a goodbye.
/// It knows steps and sources of tokens, no requests. One thread.
class ExpertServer {
 public:
  /// Whether this rank should go, asked now and then; empty: it never should. Its coordinator gives others its experts first.
  using WantsToLeave = std::function<bool()>;
  struct Options {
    Rank rank{0};                                 // this one
    std::chrono::milliseconds peer_timeout{30000};  // as of the whole job
    ClockSkew clock_skew;
    WantsToLeave wants_to_leave;
  };
  /// All outlive this.
  ExpertServer(ExpertHolder& holder, LinkHub& hub, Link& source, const Options& options);
  ~ExpertServer();
  ExpertServer(const ExpertServer&) = delete;
  ExpertServer& operator=(const ExpertServer&) = delete;

  /// How the coordinator's goodbye came.
  struct Goodbye {
    bool are_ranks_lost = false;  // who leaves should wait for no other rank
  };
  /// Returns with the goodbye. Throws Error{kUnavailable} if the coordinator is lost, {kDeadlineExceeded} if it is silent for
  /// much longer than the timeout, {kInternal} if it sends what cannot be read.
  Goodbye run();

 private:
  struct Inbox {
    AlignedBuffer bytes;
    std::unique_ptr<PendingOp> receive;
  };

  void post_receive(Inbox& inbox);
  std::size_t await(Inbox& inbox);
  void tend();
  void answer(std::span<const std::byte> message, uint64_t begun, uint64_t arrived);
  void assign(std::span<const std::byte> message);
  void send(std::span<const std::byte> message, int tag);
  Deadline deadline() const { return hub_.now() + idle_timeout_; }

  ExpertHolder& holder_;
  LinkHub& hub_;
  Link& source_;
  const Options options_;
  TraceWorker trace_;
  RunAccount run_account_;
  std::array<Inbox, 2> inboxes_;
  AlignedBuffer reply_;
  std::chrono::milliseconds idle_timeout_;
  uint32_t epoch_ = 0;  // of the coordinator's placement
  bool has_asked_to_leave_ = false;
};

}  // namespace ferry
