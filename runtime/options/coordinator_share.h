#pragma once

#include <string>

#include "runtime/options/options.h"

namespace ferry {

/// Which of a job's coordinators: `index` of `count`, at `host`, which is empty where all of them are on one.
struct CoordinatorSeat {
  int index = 0, count = 1;
  std::string host;
};

/// What of the job's options is one coordinator's, where there are several: ports behind those of --http, --grpc and --elastic
/// (HOST:PORT becomes PORT + 1 + index, and of --elastic, which no other has, PORT + index; unix:NAME becomes unix:NAME-index;
/// port 0 stays), on `host` if that is not empty; a folder coordinator-INDEX of --trace-dir; and, but of the first, FILE.INDEX
/// of --expert-load. Throws Error{kInvalidArgument} that names the option if a port would be above 65535.
Options share_of(Options options, const CoordinatorSeat& seat);

}  // namespace ferry
