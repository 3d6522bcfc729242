#include "runtime/server/http2/socket_pair.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>

namespace ferry {

std::optional<SocketPair> make_socket_pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) return std::nullopt;
  SocketPair pair{.named = FileDescriptor(ends[0]), .other = FileDescriptor(ends[1])};
  sockaddr_un any{};
  any.sun_family = AF_UNIX;  // alone: the system chooses a free name in the abstract namespace (unix(7), autobind)
  if (bind(ends[0], reinterpret_cast<const sockaddr*>(&any), sizeof(any.sun_family)) != 0) return std::nullopt;
  return pair;
}

}  // namespace ferry
