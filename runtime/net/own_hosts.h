#pragma once

#include <string>
#include <vector>

namespace ferry {

/// Returns the names of this machine that are known without a name server: its host name, the first label of that, and this
/// label with ".local" and with each of the resolver's search domains. The addresses of its network interfaces follow, but for
/// loopback and link-local ones. All are in lower case and without brackets, each once.
std::vector<std::string> own_hosts();

/// Returns the same for a machine with that host name, these search domains and these addresses.
std::vector<std::string> hosts_of(const std::string& host_name, const std::vector<std::string>& search_domains,
                                  const std::vector<std::string>& addresses);

}  // namespace ferry
