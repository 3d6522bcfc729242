#include "comm/net_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>

#include "runtime/base/error.h"

namespace ferry {
namespace {

// The numeric form of an IPv4 or IPv6 address; empty for any other family.
std::string numeric_address(const sockaddr* address) {
  if (address == nullptr) return {};
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
  } else if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
  }
  return text.data();
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

// The address of the interface called `name` (IPv4 if it has one), or empty.
std::string interface_address(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::string found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    std::string address = entry->ifa_name == name ? numeric_address(entry->ifa_addr) : std::string();
    if (address.empty()) continue;
    if (entry->ifa_addr->sa_family == AF_INET) return address;
    if (found.empty() && !address.starts_with("fe80")) found = address;  // a link-local address needs a scope to be reached
  }
  return found;
}

// What `host` (a name or an address) resolves to, IPv4 if possible, or empty.
std::string resolve(const std::string& host) {
  for (const int family : {AF_INET, AF_INET6}) {
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) continue;
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
    return numeric_address(list->ai_addr);
  }
  return {};
}

// A port of 0 on `address` can be bound exactly if the address belongs to this host.
bool is_own_address(const std::string& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(address.c_str(), nullptr, &hints, &list) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  const int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool is_own = bind(fd, list->ai_addr, list->ai_addrlen) == 0;
  close(fd);
  return is_own;
}

}  // namespace

std::string network_identity() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  std::error_code ignored;
  return (boot_id + " " + std::filesystem::read_symlink("/proc/self/ns/net", ignored).string()).substr(0, 128);
}

std::string choose_net_address(const std::string& net_interface, bool all_on_this_host) {
  if (net_interface.empty() && all_on_this_host) return "127.0.0.1";
  if (net_interface.empty()) {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    std::string address = resolve(host.data());
    if (address.empty() || is_loopback(address) || !is_own_address(address)) {
      throw_invalid(
          "[gloo] this host's name '" + std::string(host.data()) + "' resolves to '" + address +
          "', which other hosts cannot reach; set net-interface to the name or address of an interface that they can");
    }
    return address;
  }
  std::string address = interface_address(net_interface);
  if (address.empty()) address = resolve(net_interface);
  if (address.empty() || !is_own_address(address)) {
    throw_invalid("[gloo] net-interface '" + net_interface +
                  "' is neither an interface of this host with an address, nor an address or name of this host");
  }
  if (is_loopback(address) && !all_on_this_host) {
    throw_invalid("[gloo] net-interface '" + net_interface + "' is loopback (" + address +
                  "), but the ranks run on several hosts; set it to an interface that they share");
  }
  return address;
}

bool all_share_a_host(Group& group, Deadline deadline) {
  constexpr std::size_t kIdentityBytes = 128;
  std::string mine = network_identity();
  mine.resize(kIdentityBytes, ' ');
  std::string all(kIdentityBytes * static_cast<std::size_t>(group.size()), ' ');
  group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), deadline);
  for (std::size_t offset = 0; offset < all.size(); offset += kIdentityBytes) {
    if (all.compare(offset, kIdentityBytes, mine) != 0) return false;
  }
  return true;
}

}  // namespace ferry
