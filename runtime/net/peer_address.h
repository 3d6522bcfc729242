#pragma once

#include <string>

namespace ferry {

/// Returns where the other end of a connected socket is: "10.0.0.5:4711", "[fe80::1]:4711", or "unix" for a process of this
/// machine that came by a name. Empty for anything else.
std::string peer_address(int socket);

/// Returns this machine's name, empty if the system does not tell.
std::string host_name();

}  // namespace ferry
