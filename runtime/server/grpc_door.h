#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/options/server_limits.h"
#include "runtime/server/access.h"
#include "runtime/server/connection_acceptor.h"
#include "runtime/server/http2/client_relay.h"

namespace ferry {

/// How clients come to a gRPC server: over connections that a ConnectionAcceptor accepts and a ClientRelay watches, within the
/// bounds of ServerLimits and under the TLS of Access.
///
///   GrpcDoor door(address, limits);
///   grpc::ServerBuilder builder;
///   door.prepare(builder, access);
///   … services …
///   const std::unique_ptr<grpc::Server> server = door.build(builder);
///   door.open();
///
/// It must outlive the server.
class GrpcDoor {
 public:
  /// Listens when it returns. Throws Error{kInvalidArgument} for an address that is not HOST:PORT and
  /// Error{kFailedPrecondition} if it cannot be listened on.
  GrpcDoor(const std::string& address, const ServerLimits& limits);

  /// HOST:PORT with the port that is really used.
  const std::string& address() const { return acceptor_.address(); }

  /// Closes connections as they come until open() is called, so that callers learn at once that nobody serves yet.
  void refuse_until_open();
  /// Connections, their bounds and credentials; messages' bounds are the services' matter.
  /// Throws Error{kInvalidArgument} that names the option whose file cannot be used.
  void prepare(grpc::ServerBuilder& builder, const Access& access);
  /// Throws Error{kFailedPrecondition} where gRPC cannot start.
  std::unique_ptr<grpc::Server> build(grpc::ServerBuilder& builder) const;
  /// Has connections come from now on.
  void open();
  /// No more of them come; `server` takes no more calls, waits until the open ones are done, cancels them after `grace`, and
  /// stops. Once only: later calls wait for the first one. Any thread may call it.
  void shutdown(grpc::Server& server, std::chrono::milliseconds grace);

 private:
  void start_accepting();
  void hand_over(int fd);

  const ServerLimits limits_;
  const std::string asked_address_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::optional<ClientRelay> relay_;  // its threads use the one above
  std::atomic<bool> is_open_{false};
  bool is_accepting_ = false;
  ConnectionAcceptor acceptor_;  // its thread uses the relay
  std::mutex shutdown_mutex_;
  bool is_shut_down_ = false;
};

}  // namespace ferry
