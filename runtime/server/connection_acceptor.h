#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "runtime/net/listeners.h"

namespace ferry {

/// Accepts TCP connections on one HOST:PORT, on a thread of its own, and hands each one over as a file descriptor.
///
/// It stands in for the accept loops of server libraries, which give up for good, or spin, when the process has no file
/// descriptor left (gRPC 1.51 never accepts again after one failed accept). This one waits and goes on, and knows how many of
/// the connections that it handed over are still open.
class ConnectionAcceptor {
 public:
  /// Gets a connected socket (non-blocking, close-on-exec, without Nagle's delay) and owns it from then on. Called on the
  /// acceptor's thread; must not block.
  using Taker = std::function<void(int fd)>;

  /// Listens on `address` (HOST:PORT, the port may be 0) when it returns; takes nothing before start(). Connections beyond
  /// `max_open` at once are closed as they come, and those of one host beyond three quarters of them: somebody who opens all
  /// that he can leaves room for others. `what` names the service in errors. Throws Error{kInvalidArgument} for an
  /// address that is not HOST:PORT, {kFailedPrecondition} if it cannot be listened on.
  ConnectionAcceptor(const std::string& what, const std::string& address, int max_open);
  /// As stop().
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  /// HOST:PORT with the port that is really used.
  const std::string& address() const { return listeners_.address; }

  void start(Taker take);
  /// How often it could not accept since descriptors or memory had run out, so far. For tests.
  int64_t num_shortages() const { return num_shortages_; }

  /// Closes the listening sockets; connections that were handed over stay. When it returns, the taker is not running.
  void stop();

 private:
  /// A host, by its address: all of IPv4's, mapped into IPv6, or the first half of IPv6's, of which a host has the rest.
  using Host = std::array<uint8_t, 16>;

  /// A socket that was handed over. Its number may be used again once it is closed, its inode is not.
  struct Connection {
    int fd = -1;
    ino_t inode = 0;
    Host host{};
  };

  void run();
  void accept_from(int listener);
  /// Waits until a listener is readable; false when it is time to leave.
  bool wait_for_connection();
  /// Waits a little for file descriptors or memory to become free; false when it is time to leave.
  bool wait_for_resources() const;
  static Host host_of(int fd);
  bool has_room_for(const Host& host);
  bool seems_full_for(const Host& host) const;

  const int max_open_, max_open_per_host_;
  Listeners listeners_;
  FileDescriptor wake_;  // an eventfd, readable when it is time to leave
  Taker take_;
  std::vector<Connection> handed_over_;  // of the acceptor's thread; may hold some that are closed
  bool lacks_resources_ = false;
  std::atomic<int64_t> num_shortages_{0};
  std::thread thread_;
};

}  // namespace ferry
