#include "comm/rendezvous/local_place.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr const char* kPrefix = "unix:";
constexpr std::size_t kLongestName = 100;  // sun_path has 108

struct LocalPlace {
  sockaddr_un address{};
  socklen_t size = 0;
};

/// Abstract names begin with a zero, and end with the address.
LocalPlace place_called(const std::string& name) {
  LocalPlace place;
  place.address.sun_family = AF_UNIX;
  name.copy(place.address.sun_path + 1, kLongestName);
  place.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return place;
}

FileDescriptor make_local_socket() { return FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

}  // namespace

std::optional<std::string> local_place_of(const std::string& address) {
  if (!address.starts_with(kPrefix)) return std::nullopt;
  std::string name = address.substr(std::strlen(kPrefix));
  if (name.empty() || name.size() > kLongestName) {
    throw_invalid("'" + address + "' has a name of " + std::to_string(name.size()) + " characters; allowed: 1 to " +
                  std::to_string(kLongestName));
  }
  return name;
}

FileDescriptor listen_at_local_place(const std::string& name) {
  const LocalPlace place = place_called(name);
  FileDescriptor made = make_local_socket();
  if (made.get() < 0 || bind(made.get(), reinterpret_cast<const sockaddr*>(&place.address), place.size) != 0 ||
      listen(made.get(), SOMAXCONN) != 0) {
    throw Error(ErrorCode::kFailedPrecondition, "cannot listen on unix:" + name + ": " + std::strerror(errno));
  }
  return made;
}

FileDescriptor connect_to_local_place(const std::string& name) {
  const LocalPlace place = place_called(name);
  FileDescriptor made = make_local_socket();
  if (made.get() < 0 || connect(made.get(), reinterpret_cast<const sockaddr*>(&place.address), place.size) != 0)
    return FileDescriptor(-1);
  return made;
}

}  // namespace ferry
