#include "runtime/net/host_port.h"

#include <charconv>

#include "runtime/base/error.h"

namespace ferry {

HostPort parse_host_port(const std::string& what, const std::string& address) {
  const std::size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon == std::string::npos ? 0 : colon);
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  int number = -1;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool is_port = error == std::errc() && end == port.data() + port.size() && number >= 0 && number <= 65535;
  const bool is_bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  if (host.empty() || is_bare_ipv6 || !is_port) {
    throw_invalid(what + " address '" + address + "' is not HOST:PORT with a port in 0‥65535 (an IPv6 host in brackets)");
  }
  return {host, number};
}

std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
}

}  // namespace ferry
