#include "runtime/server/connection_acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
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
#include <memory>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/server/host_port.h"

namespace ferry {
namespace {

constexpr int kBacklog = 512;         // connections that the kernel completes ahead of accept
constexpr int kResourceWaitMs = 100;  // between tries when the process or the system has run out of descriptors
constexpr int kAcceptsPerTurn = 64;   // before another listener and the request to leave are looked at
constexpr std::array kResourceErrors = {EMFILE, ENFILE, ENOBUFS, ENOMEM};

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

[[noreturn]] void refuse(const std::string& what, const std::string& address, const std::string& reason) {
  throw Error(ErrorCode::kFailedPrecondition, "cannot serve " + what + " on " + address + ": " + reason);
}

Addresses resolve(const std::string& what, const std::string& address, const HostPort& place) {
  const bool has_brackets = place.host.front() == '[' && place.host.back() == ']';
  const std::string host = has_brackets ? place.host.substr(1, place.host.size() - 2) : place.host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(place.port).c_str(), &hints, &found);
  if (error != 0) refuse(what, address, gai_strerror(error));
  return Addresses(found);
}

void set_port(sockaddr_storage& storage, uint16_t port) {
  if (storage.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  if (storage.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
}

uint16_t port_of(int listener) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  getsockname(listener, reinterpret_cast<sockaddr*>(&storage), &size);
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in&>(storage).sin_port);
  return ntohs(reinterpret_cast<sockaddr_in6&>(storage).sin6_port);
}

/// A socket that listens on `place`, or -1 with errno set. [::] takes IPv4, too.
int open_listener(const addrinfo& place, uint16_t port) {
  const int fd = socket(place.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_storage storage{};
  std::memcpy(&storage, place.ai_addr, place.ai_addrlen);
  set_port(storage, port);
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));  // a restart need not wait for the last one's connections
  if (place.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&storage), place.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

ino_t inode_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(const std::string& what, const std::string& address, int max_open)
    : max_open_(max_open), max_open_per_host_(max_open - max_open / 4) {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) refuse(what, address, std::strerror(errno));
  try {
    listen_on(what, address);
  } catch (...) {
    stop();
    close(wake_);
    throw;
  }
}

ConnectionAcceptor::~ConnectionAcceptor() {
  stop();
  close(wake_);
}

/// Every address that the host's name has and this machine owns.
void ConnectionAcceptor::listen_on(const std::string& what, const std::string& address) {
  const HostPort place = parse_host_port(what, address);
  const Addresses found = resolve(what, address, place);
  auto port = static_cast<uint16_t>(place.port);
  int error = 0;
  for (const addrinfo* next = found.get(); next != nullptr; next = next->ai_next) {
    const int listener = open_listener(*next, port);
    if (listener >= 0) {
      listeners_.push_back(listener);
      port = port_of(listener);
    } else if (error == 0 || errno == EADDRINUSE) {
      error = errno;
    }
  }
  if (listeners_.empty() || error == EADDRINUSE) refuse(what, address, std::strerror(error));
  address_ = place.host + ":" + std::to_string(port);
}

void ConnectionAcceptor::start(Taker take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { run(); });
}

void ConnectionAcceptor::stop() {
  const uint64_t one = 1;
  const bool is_told = write(wake_, &one, sizeof(one)) == sizeof(one);
  if (thread_.joinable() && is_told) thread_.join();
  for (const int listener : std::exchange(listeners_, {})) close(listener);
}

void ConnectionAcceptor::run() {
  while (lacks_resources_ ? wait_for_resources() : wait_for_connection()) {
    lacks_resources_ = false;
    for (const int listener : listeners_) accept_from(listener);
  }
}

bool ConnectionAcceptor::wait_for_connection() {
  std::vector<pollfd> watched = {{.fd = wake_, .events = POLLIN, .revents = 0}};
  for (const int listener : listeners_) watched.push_back({.fd = listener, .events = POLLIN, .revents = 0});
  poll(watched.data(), watched.size(), -1);
  return watched[0].revents == 0;
}

bool ConnectionAcceptor::wait_for_resources() const {
  pollfd watched = {.fd = wake_, .events = POLLIN, .revents = 0};
  poll(&watched, 1, kResourceWaitMs);
  return watched.revents == 0;
}

void ConnectionAcceptor::accept_from(int listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      lacks_resources_ |= std::find(kResourceErrors.begin(), kResourceErrors.end(), errno) != kResourceErrors.end();
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
