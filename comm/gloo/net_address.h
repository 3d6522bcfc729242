#pragma once

#include <string>

namespace ferry {

/// What two processes have in common exactly if they reach each other through loopback: the running kernel's boot id and the
/// network namespace. At most 128 characters.
std::string network_identity();

/// Numeric address to bind to for GlooOptions::net_interface. `all_on_this_host` decides what an empty string means.
/// IPv4 is preferred. Throws Error{kInvalidArgument} that names the value and what is allowed.
std::string choose_net_address(const std::string& net_interface, bool all_on_this_host);

}  // namespace ferry
