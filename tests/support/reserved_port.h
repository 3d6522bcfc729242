#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <stdexcept>
#include <string>

#include "runtime/base/file_descriptor.h"

namespace ferry::test {

/// A port of all IPv4 addresses of this host that the system gives nobody else while this lives. Nobody listens there, so
/// connections are refused, until a server of the test listens on this very address (its socket has SO_REUSEADDR).
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof place;
    auto* const plain = reinterpret_cast<sockaddr*>(&place);
    if (bind(socket_.get(), plain, size) != 0 || getsockname(socket_.get(), plain, &size) != 0)
      throw std::runtime_error("no port to reserve");
    port_ = ntohs(place.sin_port);
  }

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  const FileDescriptor socket_;
  int port_ = 0;
};

}  // namespace ferry::test
