#pragma once

#include <string>
#include <vector>

namespace ferry {

/// What others call this machine, as far as it is known without asking a name server: its host name, its first label, that with
/// ".local" and with each of the resolver's search domains, then the addresses of its network interfaces. In lower case, each
/// once, without brackets. Neither loopback nor link-local addresses.
std::vector<std::string> own_hosts();

/// The same of a machine with that host name, these search domains and these addresses.
std::vector<std::string> hosts_of(const std::string& host_name, const std::vector<std::string>& search_domains,
                                  const std::vector<std::string>& addresses);

}  // namespace ferry
