#pragma once

#include <string>

namespace ferry {

/// Tells where a worker runs. A field is empty where that is not known.
struct WorkerHome {
  std::string host;     // name of its machine, as the worker says
  std::string address;  // of its end of the connection, as the coordinator sees it: HOST:PORT, or "unix" on the same machine
};

}  // namespace ferry
