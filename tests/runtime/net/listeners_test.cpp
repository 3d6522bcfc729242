#include "runtime/net/listeners.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <set>

#include "tests/support/expect_error.h"
#include "tests/support/reserved_port.h"

namespace ferry {
namespace {

sockaddr_storage ipv4(const char* address) {
  sockaddr_storage storage{};
  auto& place = reinterpret_cast<sockaddr_in&>(storage);
  place.sin_family = AF_INET;
  EXPECT_EQ(inet_pton(AF_INET, address, &place.sin_addr), 1);
  return storage;
}

/// "127.0.0.1:8000", where an IPv4 socket is bound.
std::string place_of(const FileDescriptor& socket) {
  sockaddr_in place{};
  socklen_t size = sizeof place;
  EXPECT_EQ(getsockname(socket.get(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  char text[INET_ADDRSTRLEN];
  return std::string(inet_ntop(AF_INET, &place.sin_addr, text, sizeof text)) + ":" + std::to_string(ntohs(place.sin_port));
}

TEST(Listeners, ListenOnEachAddressOfTheHostOnOnePort) {
  const Listeners listeners =
      open_listeners("test", {"name", 0}, {ipv4("127.0.0.1"), ipv4("203.0.113.7"), ipv4("127.0.0.2"), ipv4("127.0.0.1")});
  ASSERT_EQ(listeners.address.substr(0, 5), "name:");
  const std::string port = listeners.address.substr(4);
  EXPECT_NE(port, ":0");
  std::set<std::string> places;
  for (const FileDescriptor& socket : listeners.sockets) places.insert(place_of(socket));
  EXPECT_EQ(places, (std::set<std::string>{"127.0.0.1" + port, "127.0.0.2" + port}))
      << "the others are no addresses of this host";
  EXPECT_EQ(listeners.sockets.size(), 2U);
}

TEST(Listeners, OneAddressInUseIsEnoughToRefuse) {
  const test::ReservedPort port;  // so that it is in use where this test uses it, and nowhere else
  const Listeners other = open_listeners("test", "127.0.0.2:" + std::to_string(port.port()));
  const HostPort place{"name", port.port()};
  test::expect_error(
      [&] {
        open_listeners("test", place, {ipv4("127.0.0.1"), ipv4("127.0.0.2")});
      },
      ErrorCode::kFailedPrecondition, {"cannot serve test on name:", "in use"});
  EXPECT_EQ(open_listeners("test", place, {ipv4("127.0.0.1")}).sockets.size(), 1U) << "the refused one let go of it";
}

}  // namespace
}  // namespace ferry
