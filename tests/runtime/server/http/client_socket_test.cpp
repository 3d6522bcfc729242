#include "runtime/server/http/client_socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "runtime/base/file_descriptor.h"

namespace ferry {
namespace {

int option(const FileDescriptor& socket, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(getsockopt(socket.get(), level, name, &value, &size), 0);
  return value;
}

TEST(ClientSocket, TheSystemLooksForVanishedClients) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set_client_options(socket.get(), 12.5);
  EXPECT_EQ(option(socket, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option(socket, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(socket, IPPROTO_TCP, TCP_KEEPIDLE), 30);
  EXPECT_EQ(option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 12500);
  set_client_options(-1, 12.5);
}

}  // namespace
}  // namespace ferry
