#pragma once

#include <sys/socket.h>

namespace ferry {

/// Whether `address` belongs to a host of the internet at large: none of IANA's special-purpose registries (this machine,
/// private and link-local networks, carriers' own, multicast, documentation …) and none under which clouds tell their machines
/// secrets. IPv4 addresses that IPv6 ones carry (mapped, NAT64, 6to4) are judged like plain ones; a NAT64 prefix that a network
/// chose itself cannot be known. Families other than IPv4 and IPv6 are not public.
bool is_public_address(const sockaddr* address);

}  // namespace ferry
