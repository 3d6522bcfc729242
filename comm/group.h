#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/op.h"
#include "runtime/base/types.h"

// The whole contract between Ferry and a transport. Names and shapes are NCCL's: point-to-point send and recv gathered between
// group_start and group_end, collectives, abort, asynchronous errors. Behind it: threads of one process, MPI and gloo.
//
//   group.group_start();
//   for (Rank worker : workers) { group.send(request[worker], worker, tag); group.recv(reply[worker], worker, tag); }
//   group.group_end();          // returns when all of them are done, or throws at the deadline

namespace ferry {

/// One member's handle on a set of processes that exchange messages.
///
/// Threads: one thread at a time may call anything but abort(), async_error() and fail(), which any thread may call at any
/// time. Errors: a lost or silent peer is Error{kUnavailable} or, at a deadline, Error{kDeadlineExceeded}; both name the
/// rank. A message that does not fit its receive is Error{kInternal} that names the rank and both sizes. After any of them the
/// group is only good for abort() and destruction. What abort() interrupts throws Error{kCancelled}.
/// Messages between two ranks with one tag arrive in the order they were sent; with different tags they may be received in any
/// order. A rank does not send to itself.
///
/// Destruction is a clean goodbye that no peer takes for a death. It does not wait for what is still on its way to a peer: end
/// with a barrier.
class Group {
 public:
  static constexpr int kNumTags = 1024;       // what callers may use: 0 ‥ 1023
  static constexpr int kNumInnerTags = 2048;  // with the range that the collectives use

  virtual ~Group() = default;

  virtual const char* name() const = 0;  // "local", "mpi", "gloo"
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  /// Posts without waiting; the memory must stay untouched until wait(). A send may end only when its receive is waited for.
  /// Destroying an unfinished operation is allowed only after abort() or after a wait has thrown.
  virtual std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, Rank to, int tag) = 0;
  virtual std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, Rank from, int tag, Fit fit) = 0;

  /// Returns when `op` is done: the bytes of the message, which may be fewer than its receive has room for. What lies behind
  /// them is unspecified. Gives the core away while it waits.
  virtual std::size_t wait(PendingOp& op, Deadline deadline) = 0;

  /// The clock that deadlines are taken from.
  virtual Deadline now() const { return std::chrono::steady_clock::now(); }

  /// Marks the group as failed because of `rank`: every wait, now and later, throws Error{kUnavailable} with `reason`.
  virtual void fail(Rank rank, const std::string& reason) = 0;
  /// Why the group failed, empty while it is healthy.
  virtual std::string async_error() const = 0;
  /// Gives up: cancels what is pending and drops connections, without waiting for anyone.
  virtual void abort() = 0;

  // NCCL's vocabulary on top of the above (comm/group.cpp). Every rank of the group calls the collectives in the same order.

  /// send and recv are posted at once and belong to the open group; there is no send or recv outside of one. The memory
  /// must live until group_end returns, or until one of the three throws, which drops all that was posted. The message must
  /// have data.size() bytes, or, if `received` is given, as many at most: that is its length when group_end returns.
  void group_start();
  void send(std::span<const std::byte> data, Rank to, int tag);
  void recv(std::span<std::byte> data, Rank from, int tag, std::size_t* received = nullptr);
  void group_end(Deadline deadline);
  /// Returns after every rank has called it.
  void barrier(Deadline deadline);
  /// `data` of rank `root` replaces every other rank's, which must have the same size.
  void broadcast(std::span<std::byte> data, Rank root, Deadline deadline);
  /// Every rank contributes data.size() bytes; out holds size() * data.size() bytes in rank order.
  void all_gather(std::span<const std::byte> data, std::span<std::byte> out, Deadline deadline);
  /// send_counts[r] bytes at send_offsets[r] go to rank r; recv likewise, and recv_counts may be larger than what comes.
  /// A rank's part for itself is copied.
  struct AllToAllV {
    std::span<const std::byte> send;
    std::span<const int64_t> send_counts, send_offsets;  // [size()] bytes
    std::span<std::byte> recv;
    std::span<const int64_t> recv_counts, recv_offsets;  // [size()] bytes
  };
  void all_to_all_v(const AllToAllV& args, Deadline deadline);
  /// Sums in rank order ((x0 + x1) + x2 …), so every rank gets the same bits.
  void all_reduce_sum(std::span<float> data, Deadline deadline);

 private:
  struct Posted {
    std::unique_ptr<PendingOp> op;
    bool is_recv = false;
    std::size_t* received = nullptr;
  };

  void post(const std::function<Posted()>& start);
  void wait_all(std::vector<std::unique_ptr<PendingOp>>& ops, Deadline deadline);

  bool in_group_ = false;
  std::vector<Posted> group_ops_;
};

}  // namespace ferry
