#include "runtime/net/peer_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace ferry {

std::string peer_address(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  const auto* const address = reinterpret_cast<const sockaddr*>(&peer);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "";
  if (peer.ss_family == AF_UNIX) return "unix";
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(address, size, host.data(), host.size(), port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "";
  const std::string name = host.data();
  return (peer.ss_family == AF_INET6 ? "[" + name + "]" : name) + ":" + port.data();
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace ferry
