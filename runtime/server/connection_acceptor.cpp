#include "runtime/server/connection_acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int kResourceWaitMs = 100;  // between tries when the process or the system has run out of descriptors
constexpr int kAcceptsPerTurn = 64;   // before another listener and the request to leave are looked at
constexpr std::array kResourceErrors = {EMFILE, ENFILE, ENOBUFS, ENOMEM};

ino_t inode_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(const std::string& what, const std::string& address, int max_open)
    : max_open_(max_open),
      max_open_per_host_(max_open - max_open / 4),
      listeners_(open_listeners(what, address)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_.get() < 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                "cannot serve " + what + " on " + address + ": no descriptor is left: " + std::strerror(errno));
  }
}

ConnectionAcceptor::~ConnectionAcceptor() { stop(); }

void ConnectionAcceptor::start(Taker take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { run(); });
}

void ConnectionAcceptor::stop() {
  const uint64_t one = 1;
  const bool is_told = write(wake_.get(), &one, sizeof(one)) == sizeof(one);
  if (thread_.joinable() && is_told) thread_.join();
  listeners_.sockets.clear();
}

void ConnectionAcceptor::run() {
  while (lacks_resources_ ? wait_for_resources() : wait_for_connection()) {
    lacks_resources_ = false;
    for (const FileDescriptor& listener : listeners_.sockets) accept_from(listener.get());
  }
}

bool ConnectionAcceptor::wait_for_connection() {
  std::vector<pollfd> watched = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  for (const FileDescriptor& listener : listeners_.sockets)
    watched.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
  poll(watched.data(), watched.size(), -1);
  return watched[0].revents == 0;
}

bool ConnectionAcceptor::wait_for_resources() const {
  pollfd watched = {.fd = wake_.get(), .events = POLLIN, .revents = 0};
  poll(&watched, 1, kResourceWaitMs);
  return watched.revents == 0;
}

void ConnectionAcceptor::accept_from(int listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      const bool is_shortage = std::find(kResourceErrors.begin(), kResourceErrors.end(), errno) != kResourceErrors.end();
      if (is_shortage) ++num_shortages_;
      lacks_resources_ |= is_shortage;
      return;  // also for a connection that was gone before it was accepted: the next turn takes the others
    }
    const Host host = host_of(fd);
    if (!has_room_for(host)) {
      close(fd);
      continue;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    handed_over_.push_back({.fd = fd, .inode = inode_of(fd), .host = host});
    take_(fd);
  }
}

ConnectionAcceptor::Host ConnectionAcceptor::host_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  Host host{};
  getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size);  // if it fails the peer is gone: any host will do
  if (storage.ss_family == AF_INET) {
    host[10] = host[11] = 0xFF;
    std::memcpy(&host[12], &reinterpret_cast<sockaddr_in&>(storage).sin_addr, 4);
  } else if (storage.ss_family == AF_INET6) {
    const in6_addr& address = reinterpret_cast<sockaddr_in6&>(storage).sin6_addr;
    std::memcpy(host.data(), &address, IN6_IS_ADDR_V4MAPPED(&address) ? host.size() : host.size() / 2);
  }
  return host;
}

/// Closed connections are only looked for when there seem to be too many.
bool ConnectionAcceptor::has_room_for(const Host& host) {
  if (!seems_full_for(host)) return true;
  std::erase_if(handed_over_, [](const Connection& connection) { return inode_of(connection.fd) != connection.inode; });
  return !seems_full_for(host);
}

bool ConnectionAcceptor::seems_full_for(const Host& host) const {
  const auto num_of_host =
      std::count_if(handed_over_.begin(), handed_over_.end(), [&](const Connection& each) { return each.host == host; });
  return static_cast<int>(handed_over_.size()) >= max_open_ || num_of_host >= max_open_per_host_;
}

}  // namespace ferry
