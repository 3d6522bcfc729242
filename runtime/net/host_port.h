#pragma once

#include <string>

namespace ferry {

/// HOST:PORT, taken apart.
struct HostPort {
  std::string host;  // an IPv6 one in its brackets
  int port = 0;      // 0 ‥ 65535
};

/// Throws Error{kInvalidArgument} that names `what` ("grpc", "http") unless `address` is a host and a port.
HostPort parse_host_port(const std::string& what, const std::string& address);

/// "::1" of "[::1]"; any other host as it is.
std::string without_brackets(const std::string& host);

}  // namespace ferry
