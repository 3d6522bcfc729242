#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/op.h"
#include "runtime/base/error.h"

namespace ferry {

/// How a link came to its end.
enum class LinkEnd {
  kLeft,    // the peer closed it, which is no death
  kBroken,  // the peer died or cannot be reached, or broke the rules
};

/// One end of a connection to one peer, with failures of its own: what ends here ends nothing else.
///
/// Threads: one thread at a time posts on and waits for the links of a LinkHub; fail() and failure() are for any thread.
/// Errors: a peer that left, died or was failed is Error{kUnavailable}, a message that does not fit its receive
/// Error{kInternal}; both name the peer and end the link for good. A deadline is Error{kDeadlineExceeded} and ends nothing: the
/// operation is still under way and can be waited for again.
/// Messages with one tag arrive in the order they were sent; with different tags they may be received in any order, as long as
/// those that nobody has asked for yet have together at most kMaxUnexpectedBytes, of which each takes 64 more than it has: what
/// follows then stays with the sender, and is lost if it dies.
class Link {
 public:
  static constexpr int kNumTags = 2048;  // what messages may have: 0 ‥ 2047
  static constexpr std::size_t kMaxUnexpectedBytes = std::size_t{1} << 20;

  /// Says goodbye, unless the link has failed. Does not wait for what is still on its way to the peer.
  virtual ~Link() = default;

  virtual Rank peer() const = 0;

  /// Posts without waiting; the memory must stay untouched until the operation is done or destroyed. Destroying an unfinished
  /// one is allowed at any time: of a send, what has begun to leave still does; a receive leaves its message to the next one of
  /// its tag, unless the message has begun to come: then it is dropped.
  virtual std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, int tag) = 0;
  virtual std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, int tag, Fit fit) = 0;

  /// Returns when `op`, which is one of this link, is done: the bytes of its message. What lies behind them is unspecified.
  /// What had come before the link failed can still be received.
  virtual std::size_t wait(PendingOp& op, Deadline deadline) = 0;

  /// Ends the link for `reason`, without a goodbye: every wait, now and later, throws Error{kUnavailable}.
  virtual void fail(const std::string& reason) = 0;
  /// Why it ended; nothing while it is healthy.
  virtual std::optional<Error> failure() const = 0;
};

/// Links that one thread waits for together.
class LinkHub {
 public:
  virtual ~LinkHub() = default;

  /// Whether a failure of one link, or a deadline, is one of all, as of a group's: then a lost peer ends the work.
  virtual bool fails_together() const { return false; }
  /// The clock that deadlines are taken from.
  virtual Deadline now() const { return std::chrono::steady_clock::now(); }

  /// Returns which of `ops`, which are of links of this hub, is done or has a link that failed: wait() for it returns or throws
  /// at once. Throws Error{kDeadlineExceeded} if none is at `deadline`. `ops` is not empty.
  virtual std::size_t wait_any(std::span<PendingOp* const> ops, Deadline deadline) = 0;
};

/// Called once for each link that ended without being destroyed here, from a thread of the hub, whether somebody waits or not.
/// Must not destroy the hub or one of its links.
using OnLinkEnd = std::function<void(Rank peer, LinkEnd end, const std::string& reason)>;

}  // namespace ferry
