#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "runtime/base/file_descriptor.h"

namespace ferry {

/// Where ranks that a launcher started meet: over local sockets if all are on one host and no interface is asked for, otherwise
/// over TCP.
struct MeetingPlace {
  bool is_one_host = false;
  std::string net_interface;  // as of GlooOptions

  /// Where other ranks reach this host, an IPv6 address in brackets. Throws Error{kInvalidArgument} for an interface that
  /// cannot be used.
  std::string host() const;
};

/// Collective over `bootstrap`, which only tells where to meet, and a key that nobody else knows: connects `host` with each of
/// `guests`. Returns on the host a socket for each of them, in their order, on a guest its one, on others nothing. Throws
/// Error{kInvalidArgument} for an interface that cannot be used and {kDeadlineExceeded} or {kUnavailable} for ranks that do not
/// meet.
std::vector<FileDescriptor> meet(Group& bootstrap, Rank host, std::span<const Rank> guests, const MeetingPlace& place,
                                 Deadline deadline);

}  // namespace ferry
