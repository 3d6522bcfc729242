#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/group.h"

// gloo over TCP: carries data between hosts and, unlike MPI, notices within milliseconds that a peer died.

namespace ferry {

struct GlooOptions {
  /// Interface name ("eth0"), address or host name that this rank binds to and is reached at. Empty: loopback if all ranks
  /// share a host (more exactly a network namespace), else the address that the host's own name resolves to.
  std::string net_interface;
  std::chrono::milliseconds connect_timeout{30000};  // for the whole of connecting, at least 1
  /// For all goodbyes of a rank that leaves. Threads may wait that long for a core, and a peer takes a late one for lost.
  std::chrono::milliseconds goodbye_timeout{2000};
};

/// Connects all ranks of `bootstrap`, which carries the addresses and is not used afterwards. Collective.
/// Throws Error{kInvalidArgument} for an unusable net_interface and Error{kUnavailable} or {kDeadlineExceeded} for a rank that
/// cannot be reached. Makes the process ignore SIGPIPE if it would die of it.
///
/// A message of more than 64 KiB for a receive of Fit::kUpTo costs a round trip more: what is above is sent once the receiver
/// knows the length and asks for it, in its wait(), or while it is busy if the message before was as long.
///
/// A deadline that passes in wait() closes all connections of the group (gloo knows no milder way): peers then see this rank as
/// lost. The death of any peer fails the whole group, whomever the current wait is for, so that the error names the dead rank.
/// A peer that destroyed its group is not dead, and only operations with it fail.
std::unique_ptr<Group> make_gloo_group(Group& bootstrap, const GlooOptions& options);

/// Version of gloo and the transports that it was built with and Ferry uses, such as "gloo 0.5.0 (tcp)".
std::string gloo_version();

}  // namespace ferry
