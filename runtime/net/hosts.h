#pragma once

#include <string>

// What the hosts of HOST:PORT have in common, as far as their names tell: none is looked up. "localhost" is 127.0.0.1 and ::1,
// and an IPv4 address that is mapped into IPv6 is that address.

namespace ferry {

/// Whether `host` (a name, or an address with or without brackets) reaches this machine only.
bool is_loopback_host(const std::string& host);

/// Returns whether `host` stands for all addresses of this machine, as 0.0.0.0 and :: do, with brackets or without.
bool is_any_host(const std::string& host);

/// Whether one port cannot be listened on at both hosts: they have an address in common, or one is that of all addresses.
bool do_listeners_collide(const std::string& one, const std::string& other);

/// Whether who connects to `host` from this machine surely comes to what listens on `listener` here, if the ports are the same.
bool reaches_listener(const std::string& host, const std::string& listener);

}  // namespace ferry
