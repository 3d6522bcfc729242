#include "runtime/server/public_address.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace ferry {
namespace {

/// Addresses that begin with the first `bits` of `head`.
struct Network {
  uint32_t head;
  int bits;
};

constexpr uint32_t quad(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return a << 24 | b << 16 | c << 8 | d; }

// https://www.iana.org/assignments/iana-ipv4-special-registry
constexpr Network kSpecialIpv4[] = {
    {quad(0, 0, 0, 0), 8},         // this network
    {quad(10, 0, 0, 0), 8},        // private
    {quad(100, 64, 0, 0), 10},     // between carriers and their customers
    {quad(127, 0, 0, 0), 8},       // loopback
    {quad(168, 63, 129, 16), 32},  // Azure's machines ask it for keys and certificates
    {quad(169, 254, 0, 0), 16},    // link-local, and the metadata of most clouds
    {quad(172, 16, 0, 0), 12},     // private
    {quad(192, 0, 0, 0), 24},      // protocol assignments, and the metadata of Oracle's cloud
    {quad(192, 0, 2, 0), 24},      // documentation
    {quad(192, 88, 99, 0), 24},    // 6to4 relays
    {quad(192, 168, 0, 0), 16},    // private
    {quad(198, 18, 0, 0), 15},     // benchmarks
    {quad(198, 51, 100, 0), 24},   // documentation
    {quad(203, 0, 113, 0), 24},    // documentation
    {quad(224, 0, 0, 0), 3},       // multicast, reserved, broadcast
};

// Of 2000::/3, the only part of IPv6 that is given out: https://www.iana.org/assignments/iana-ipv6-special-registry
constexpr Network kSpecialIpv6[] = {
    {0x20010000, 23},  // protocol assignments, with Teredo
    {0x20010db8, 32},  // documentation
    {0x3fff0000, 20},  // documentation
};

bool is_in(uint32_t head, std::span<const Network> networks) {
  return std::any_of(networks.begin(), networks.end(),
                     [head](const Network& network) { return (head ^ network.head) >> (32 - network.bits) == 0; });
}

bool is_public_ipv4(uint32_t address) { return !is_in(address, kSpecialIpv4); }

bool is_public_ipv6(const in6_addr& address) {
  const auto word = [&](std::size_t byte) {
    const uint8_t* bytes = address.s6_addr + byte;
    return quad(bytes[0], bytes[1], bytes[2], bytes[3]);
  };
  const uint32_t head = word(0);
  const bool is_mapped = head == 0 && word(4) == 0 && word(8) == 0x0000ffff;  // ::ffff:0:0/96
  const bool is_nat64 = head == 0x0064ff9b && word(4) == 0 && word(8) == 0;   // 64:ff9b::/96
  if (is_mapped || is_nat64) return is_public_ipv4(word(12));
  if (head >> 16 == 0x2002) return is_public_ipv4((head << 16) | (word(4) >> 16));  // 6to4, 2002::/16
  return head >> 29 == 1 && !is_in(head, kSpecialIpv6);
}

}  // namespace

bool is_public_address(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return is_public_ipv4(ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr));
  return address->sa_family == AF_INET6 && is_public_ipv6(reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace ferry
