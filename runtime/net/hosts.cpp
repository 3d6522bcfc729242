#include "runtime/net/hosts.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <vector>

#include "runtime/base/lower_case.h"
#include "runtime/net/host_port.h"

namespace ferry {
namespace {

constexpr std::string_view kAnyIpv4 = "0.0.0.0", kAnyIpv6 = "::";

std::string text_of(int family, const void* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(family, address, text.data(), text.size());
}

/// The addresses that `host` has for sure, each in the one form that inet_ntop gives it; of a name the name.
std::vector<std::string> addresses_of(const std::string& given) {
  const std::string host = lower_case(without_brackets(given));
  if (host == "localhost") return {"127.0.0.1", "::1"};
  in_addr ipv4{};  // not by its beginning: 127.example.org is somebody's name
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return {text_of(AF_INET, &ipv4)};
  in6_addr ipv6{};
  if (inet_pton(AF_INET6, host.c_str(), &ipv6) != 1) return {host};
  constexpr std::size_t kMappedAt = 12;  // bytes in front of the IPv4 address (RFC 4291 §2.5.5.2)
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return {text_of(AF_INET, &ipv6.s6_addr[kMappedAt])};
  return {text_of(AF_INET6, &ipv6)};
}

/// Of what addresses_of() gives.
bool is_loopback_address(const std::string& address) {
  in_addr ipv4{};
  return address == "::1" || (inet_pton(AF_INET, address.c_str(), &ipv4) == 1 && ntohl(ipv4.s_addr) >> 24 == 127);
}

bool is_ipv6(const std::string& address) { return address.find(':') != std::string::npos; }

/// Whether a socket that listens on `listener` has the port at `address`, too.
bool takes(const std::string& listener, const std::string& address) {
  return listener == address || listener == kAnyIpv6 || (listener == kAnyIpv4 && !is_ipv6(address));
}

bool any_pair(const std::string& one, const std::string& other,
              const std::function<bool(const std::string&, const std::string&)>& holds) {
  const std::vector<std::string> ones = addresses_of(one), others = addresses_of(other);
  return std::ranges::any_of(ones, [&](const std::string& a) {
    return std::ranges::any_of(others, [&](const std::string& b) { return holds(a, b); });
  });
}

}  // namespace

bool is_loopback_host(const std::string& host) { return std::ranges::all_of(addresses_of(host), is_loopback_address); }

bool is_any_host(const std::string& host) {
  return std::ranges::any_of(addresses_of(host), [](const auto& each) { return each == kAnyIpv4 || each == kAnyIpv6; });
}

bool do_listeners_collide(const std::string& one, const std::string& other) {
  return any_pair(one, other, [](const std::string& a, const std::string& b) { return takes(a, b) || takes(b, a); });
}

bool reaches_listener(const std::string& host, const std::string& listener) {
  return any_pair(host, listener, [](const std::string& to, const std::string& at) {
    // Linux connects to loopback where it is told to connect to no address.
    const std::string place = to == kAnyIpv4 ? "127.0.0.1" : to == kAnyIpv6 ? "::1" : to;
    return place == at || (is_loopback_address(place) && takes(at, place));
  });
}

}  // namespace ferry
