#pragma once

#include <string>

#include "runtime/options/options.h"

namespace ferry {

/// Which of a job's coordinators: `index` of `count`, at `host`, which is empty where all of them are on one.
struct CoordinatorSeat {
  int index = 0, count = 1;
  std::string host;
};

/// What of the job's options is one coordinator's, where there are several and the first one's front has --http and --grpc:
/// ports behind those (HOST:PORT becomes PORT + 1 + index), on `host` if that is not empty; behind that of --elastic, which the
/// front has no use for (PORT + index; unix:NAME becomes unix:NAME-index); port 0 stays. A folder coordinator-INDEX of
/// --trace-dir; and, but of the first, FILE.INDEX of --expert-load. With TLS, which is the front's, they are loopback's.
/// The options have passed check_together: HTTP is on, by which the front knows whether a coordinator serves, and there are as
/// many ports. Throws Error{kInvalidArgument} for TLS on several hosts, between which it would not be.
Options share_of(Options options, const CoordinatorSeat& seat);

}  // namespace ferry
