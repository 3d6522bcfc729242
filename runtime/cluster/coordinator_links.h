#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/stream/stream_hub.h"
#include "runtime/cluster/job_shape.h"
#include "runtime/cluster/meeting.h"

namespace ferry {

/// Of a job with several coordinators: what the first says to the others and hears of them, over a link with each. They share
/// workers and nothing else, so that is where their ports are and when to leave. One thread at a time.
class CoordinatorLinks {
 public:
  /// Where a coordinator answers, HOST:PORT; empty: nowhere. Up to kMaxAddress characters each.
  struct Ports {
    std::string http, grpc;
  };
  static constexpr std::size_t kMaxAddress = 255;

  /// Collective over `bootstrap`; workers take part, and need not keep it. Throws as meet() does.
  CoordinatorLinks(Group& bootstrap, const JobShape& shape, const MeetingPlace& place, Deadline deadline);

  /// Which of the coordinators this one is, from 0, and of how many.
  int index() const { return index_; }
  int count() const { return count_; }
  bool is_first() const { return index_ == 0; }
  /// The address at which the others reach this host; empty if all are on one.
  const std::string& host() const { return host_; }

  /// Every coordinator calls it once, with its own. Returns on the first the ports of all, on others nothing. Throws
  /// Error{kDeadlineExceeded} or {kUnavailable} that names the rank for one that does not tell.
  std::vector<Ports> gather(const Ports& own, Deadline deadline);

  /// The first says so to all others that are there.
  void tell_to_leave();
  /// Whether it has, or is gone; asked by the others, now and then.
  bool is_told_to_leave();

 private:
  const int index_, count_;
  const std::string host_;
  StreamHub hub_;
  std::vector<std::unique_ptr<Link>> links_;  // of the first with each other one, in their order; of another with the first
  std::byte word_{};                          // that tells another to leave
  std::unique_ptr<PendingOp> leave_;          // its receive
};

}  // namespace ferry
