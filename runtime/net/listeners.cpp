#include "runtime/net/listeners.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int kPortTries = 10;  // where the port that one address got is taken on another

[[noreturn]] void refuse(const std::string& what, const HostPort& place, const std::string& reason) {
  throw Error(ErrorCode::kFailedPrecondition,
              "cannot serve " + what + " on " + place.host + ":" + std::to_string(place.port) + ": " + reason);
}

std::vector<sockaddr_storage> resolve(const std::string& what, const HostPort& place) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(without_brackets(place.host).c_str(), nullptr, &hints, &list);
  if (error != 0) refuse(what, place, std::string("the host is not found: ") + gai_strerror(error));
  std::vector<sockaddr_storage> found;
  for (const addrinfo* next = list; next != nullptr; next = next->ai_next) {
    sockaddr_storage storage{};
    std::memcpy(&storage, next->ai_addr, next->ai_addrlen);
    found.push_back(storage);
  }
  freeaddrinfo(list);
  return found;
}

/// Of an IPv4 or IPv6 address.
in_port_t& port_in(sockaddr_storage& storage) {
  return storage.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(storage).sin_port
                                      : reinterpret_cast<sockaddr_in6&>(storage).sin6_port;
}

int port_of(const FileDescriptor& listener) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&storage), &size);
  return ntohs(port_in(storage));
}

/// One that listens on `place`, or none and the reason in errno.
FileDescriptor open_listener(sockaddr_storage place, int port) {
  const bool is_ipv4 = place.ss_family == AF_INET;
  FileDescriptor listener(socket(place.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (listener.get() < 0) return listener;
  port_in(place) = htons(static_cast<uint16_t>(port));
  const int on = 1, off = 0;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on,
             sizeof(on));  // a restart need not wait for the last one's connections
  if (!is_ipv4) setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  const socklen_t size = is_ipv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const bool listens =
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&place), size) == 0 && listen(listener.get(), SOMAXCONN) == 0;
  if (listens) return listener;
  const int error = errno;
  listener = FileDescriptor(-1);
  errno = error;
  return listener;
}

bool is_same(const sockaddr_storage& a, const sockaddr_storage& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

/// Listens on each of `found` that this machine owns, on `port`, or if that is 0 on the one that the first gets. Returns 0, or
/// why it is on none or one of them is in use.
int listen_on_each(const std::vector<sockaddr_storage>& found, int port, std::vector<FileDescriptor>& sockets) {
  int error = 0;
  for (auto next = found.begin(); next != found.end(); ++next) {
    if (std::any_of(found.begin(), next, [&](const sockaddr_storage& before) { return is_same(before, *next); })) continue;
    FileDescriptor listener = open_listener(*next, port);
    if (listener.get() < 0) {
      if (error == 0 || errno == EADDRINUSE) error = errno;
      continue;
    }
    port = port_of(listener);
    sockets.push_back(std::move(listener));
  }
  return sockets.empty() || error == EADDRINUSE ? error : 0;
}

}  // namespace

Listeners open_listeners(const std::string& what, const HostPort& place, const std::vector<sockaddr_storage>& found) {
  std::vector<FileDescriptor> sockets;
  int error = listen_on_each(found, place.port, sockets);
  for (int i = 1; i < kPortTries && place.port == 0 && error == EADDRINUSE; ++i) {
    sockets.clear();
    error = listen_on_each(found, 0, sockets);
  }
  if (error != 0) refuse(what, place, std::strerror(error));
  std::string address = place.host + ":" + std::to_string(port_of(sockets.front()));
  return {.sockets = std::move(sockets), .address = std::move(address)};
}

Listeners open_listeners(const std::string& what, const std::string& address) {
  const HostPort place = parse_host_port(what, address);
  return open_listeners(what, place, resolve(what, place));
}

}  // namespace ferry
