#include "runtime/net/own_hosts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <resolv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <memory>

#include "runtime/base/lower_case.h"

namespace ferry {
namespace {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// As /etc/resolv.conf has them.
std::vector<std::string> search_domains() {
  struct __res_state state {};
  if (::res_ninit(&state) != 0) return {};
  std::vector<std::string> domains;
  for (int i = 0; i <= MAXDNSRCH && state.dnsrch[i] != nullptr; ++i) domains.emplace_back(state.dnsrch[i]);
  ::res_nclose(&state);
  return domains;
}

/// Empty for what is no address that others could use.
std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET)
    return ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text.data(), text.size());
  if (address->sa_family != AF_INET6) return "";
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (IN6_IS_ADDR_LINKLOCAL(&ipv6)) return "";
  return ::inet_ntop(AF_INET6, &ipv6, text.data(), text.size());
}

std::vector<std::string> interface_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, ::freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_LOOPBACK) == 0) addresses.push_back(text_of(each->ifa_addr));
  }
  return addresses;
}

}  // namespace

std::vector<std::string> own_hosts() { return hosts_of(host_name(), search_domains(), interface_addresses()); }

std::vector<std::string> hosts_of(const std::string& host_name, const std::vector<std::string>& search_domains,
                                  const std::vector<std::string>& addresses) {
  std::vector<std::string> hosts;
  const auto add = [&hosts](const std::string& host) {
    if (!host.empty() && std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  };
  const std::string name = lower_case(host_name), label = name.substr(0, name.find('.'));
  add(name);
  add(label);
  if (!label.empty()) {
    add(label + ".local");
    for (const std::string& domain : search_domains) add(domain.empty() ? "" : label + "." + lower_case(domain));
  }
  for (const std::string& address : addresses) add(address);
  return hosts;
}

}  // namespace ferry
