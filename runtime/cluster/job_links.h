#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/stream/stream_hub.h"

namespace ferry {

/// The links of a job that a launcher started: rank 0 has one with every other rank, which has that one. Over local
/// sockets if all are on one host and no interface is asked for, otherwise over TCP; the job's group only tells where to meet,
/// and a key that nobody else knows.
class JobLinks {
 public:
  /// Collective over `bootstrap`. `net_interface` as of GlooOptions. Throws Error{kInvalidArgument} for an unusable one and
  /// {kDeadlineExceeded} or {kUnavailable} for ranks that do not meet.
  JobLinks(Group& bootstrap, const std::string& net_interface, OnLinkEnd on_end, Deadline deadline);

  StreamHub& hub() { return *hub_; }
  /// Of rank 0 with any other, of another with rank 0.
  Link& link(Rank peer) { return *links_.at(static_cast<std::size_t>(peer.value)); }

 private:
  void host(Group& bootstrap, const std::string& net_interface, Deadline deadline);
  void visit(Group& bootstrap, Deadline deadline);

  std::unique_ptr<StreamHub> hub_;
  std::vector<std::unique_ptr<Link>> links_;  // [size], null where there is none
};

}  // namespace ferry
