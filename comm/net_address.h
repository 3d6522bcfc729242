#pragma once

#include <string>

#include "comm/group.h"

namespace ferry {

/// What two processes have in common exactly if they reach each other through loopback: the running kernel's boot id and the
/// network namespace. At most 128 characters.
std::string network_identity();

/// Whether all ranks have the same network_identity(). Collective; errors of the group.
bool all_share_a_host(Group& group, Deadline deadline);

/// Numeric address to bind to for GlooOptions::net_interface. `all_on_this_host` decides what an empty string means.
/// IPv4 is preferred. Throws Error{kInvalidArgument} that names the value and what is allowed.
std::string choose_net_address(const std::string& net_interface, bool all_on_this_host);

}  // namespace ferry
