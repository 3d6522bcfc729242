#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "runtime/net/host_port.h"

// HOST:PORT means the same for HTTP, for gRPC and for workers that join.

namespace ferry {

/// Sockets that listen, one for each address of a host: non-blocking and close-on-exec, all on the same port.
struct Listeners {
  std::vector<FileDescriptor> sockets;
  std::string address;  // HOST:PORT, the host as it was given, with the port that is really used
};

/// Listens on every address that the host of `address` (HOST:PORT, port 0 chooses one) has and this machine owns; [::] takes
/// IPv4, too. `what` names the service in errors. Throws Error{kInvalidArgument} for an address that is not HOST:PORT,
/// {kFailedPrecondition} if the host's name leads nowhere, or it cannot be listened on.
Listeners open_listeners(const std::string& what, const std::string& address);

/// The same for a host whose name has led to `found`, addresses of IPv4 and IPv6 whatever their ports are; the same one may
/// come several times.
Listeners open_listeners(const std::string& what, const HostPort& place, const std::vector<sockaddr_storage>& found);

}  // namespace ferry
