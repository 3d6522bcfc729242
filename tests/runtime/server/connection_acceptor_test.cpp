#include "runtime/server/connection_acceptor.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>

#include "runtime/net/host_port.h"
#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"
#include "tests/support/few_descriptors.h"

namespace ferry {
namespace {

/// A client's end.
class Socket {
 public:
  Socket() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) { EXPECT_GE(fd_, 0); }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  /// `from` is an address of the loopback network.
  void connect_to(const std::string& address, in_addr_t from = INADDR_LOOPBACK) const {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(from);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(parse_host_port("test", address).port));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
  }
  bool is_closed() const {
    char byte = 0;
    const ssize_t count = recv(fd_, &byte, 1, MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
  }
  void wait_until_closed() const {
    eventually([&] { return is_closed(); }, "the acceptor to close a connection");
  }

 private:
  int fd_;
};

/// Keeps what an acceptor hands over.
class Connections {
 public:
  ~Connections() { close_all(); }
  ConnectionAcceptor::Taker taker() {
    return [this](int fd) {
      const std::lock_guard lock(mutex_);
      fds_.push_back(fd);
      changed_.notify_all();
    };
  }
  bool wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTestLimit, [&] { return fds_.size() >= count; });
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return fds_.size();
  }
  void close_all() {
    const std::lock_guard lock(mutex_);
    for (const int fd : fds_) close(fd);
    fds_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> fds_;
};

TEST(ConnectionAcceptor, OneHostLeavesRoomForOthers) {
  Connections connections;
  ConnectionAcceptor acceptor("test", "127.0.0.1:0", 4);
  acceptor.start(connections.taker());
  std::vector<Socket> greedy(5);
  for (const Socket& socket : greedy) socket.connect_to(acceptor.address());
  greedy[3].wait_until_closed();
  greedy[4].wait_until_closed();
  const Socket other;
  other.connect_to(acceptor.address(), INADDR_LOOPBACK + 1);
  EXPECT_TRUE(connections.wait_for(4));
  EXPECT_FALSE(other.is_closed());
  connections.close_all();  // and takes its own again when it lets go of some
  const Socket again;
  again.connect_to(acceptor.address());
  EXPECT_TRUE(connections.wait_for(1));
}

TEST(ConnectionAcceptor, HandsConnectionsOverUntilItStops) {
  Connections connections;
  ConnectionAcceptor acceptor("test", "127.0.0.1:0", 10);
  const Socket early, late;
  early.connect_to(acceptor.address());  // before start: the kernel keeps it
  acceptor.start(connections.taker());
  late.connect_to(acceptor.address());
  EXPECT_TRUE(connections.wait_for(2));
  acceptor.stop();
  EXPECT_FALSE(late.is_closed()) << "what was handed over stays open";
}

TEST(ConnectionAcceptor, HoldsTheCapAndTakesMoreOnceOthersHaveClosed) {
  Connections connections;
  ConnectionAcceptor acceptor("test", "127.0.0.1:0", 3);
  acceptor.start(connections.taker());
  std::vector<std::unique_ptr<Socket>> clients;
  const auto connect_one = [&]() -> const Socket& {
    clients.push_back(std::make_unique<Socket>());
    clients.back()->connect_to(acceptor.address());
    return *clients.back();
  };
  for (std::size_t i = 1; i <= 3; ++i) {
    connect_one();
    ASSERT_TRUE(connections.wait_for(i));
  }
  for (int i = 0; i < 5; ++i) connect_one().wait_until_closed();
  EXPECT_EQ(connections.count(), 3U);
  connections.close_all();
  const Socket unrelated;  // takes a number that was a connection's; only the inode tells
  connect_one();
  EXPECT_TRUE(connections.wait_for(1));
}

TEST(ConnectionAcceptor, GoesOnAfterTheProcessHadNoDescriptorsLeft) {
  Connections connections;
  ConnectionAcceptor acceptor("test", "127.0.0.1:0", 10);
  acceptor.start(connections.taker());
  const Socket first, second, third;
  first.connect_to(acceptor.address());
  ASSERT_TRUE(connections.wait_for(1));
  {
    const test::NoDescriptors none;
    second.connect_to(acceptor.address());
    eventually([&] { return acceptor.num_shortages() >= 3; }, "three tries that fail",
               [&] { return std::to_string(acceptor.num_shortages()) + " tries have failed"; });
    EXPECT_EQ(connections.count(), 1U);
  }
  third.connect_to(acceptor.address());
  EXPECT_TRUE(connections.wait_for(3));
}

TEST(ConnectionAcceptor, ListensOnAllAddressesOfAName) {
  ConnectionAcceptor acceptor("test", "localhost:0", 10);
  Connections connections;
  acceptor.start(connections.taker());
  const Socket client;
  client.connect_to(acceptor.address());
  EXPECT_TRUE(connections.wait_for(1));
  EXPECT_EQ(acceptor.address().rfind("localhost:", 0), 0U);
}

TEST(ConnectionAcceptor, AnAddressThatIsNotThisHostsIsAnError) {
  const ConnectionAcceptor first("test", "127.0.0.1:0", 10);
  for (const std::string& address : {first.address(), std::string("203.0.113.7:0")}) {
    test::expect_error([&] { const ConnectionAcceptor second("test", address, 10); }, ErrorCode::kFailedPrecondition,
                       {"test", address});
  }
}

}  // namespace
}  // namespace ferry
