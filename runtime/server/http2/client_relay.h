#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "runtime/server/access.h"

namespace ferry {

/// Stands between HTTP/2 clients and a server library, and keeps from it what it does not bound.
///
/// It ends TLS, waits for HTTP/2's preface, hands the library one end of a pair of sockets, and passes bytes on in both
/// directions. It ends a connection whose block of headers is too long (HeaderBound), before the library has read so much.
/// Up to 32 KiB of each connection wait in it. The library's end has a peer name that no other open connection has.
///
/// Any thread may call any method.
class ClientRelay {
 public:
  struct Rules {
    int64_t max_header_block_bytes;
    std::chrono::milliseconds handshake_timeout;  // for TLS and the preface together
    std::chrono::milliseconds write_timeout;      // for a client to take some bytes
  };
  /// Gets a socket (non-blocking, close-on-exec) on which a client speaks HTTP/2 in plain text, and owns it from then on.
  /// Called on the relay's threads, for one connection at a time. It must not block.
  using Taker = std::function<void(int fd)>;

  /// Throws Error{kInvalidArgument} that names the option whose file cannot be used.
  ClientRelay(const Rules& rules, const std::optional<TlsIdentity>& tls, Taker take);
  /// The same as stop() with a limit of zero.
  ~ClientRelay();
  ClientRelay(const ClientRelay&) = delete;
  ClientRelay& operator=(const ClientRelay&) = delete;

  /// Serves the client on `fd`, a connected and non-blocking TCP socket, and owns it.
  void add(int fd);
  /// Calls the taker no more once it returns. Clients that are not with the library yet are closed.
  void take_no_more();
  /// Waits up to `limit` for clients to take what the library wrote before it closed their sockets. Then it closes what is left
  /// and ends the threads.
  void stop(std::chrono::milliseconds limit);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
