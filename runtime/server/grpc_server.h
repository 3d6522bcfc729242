#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/access.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/vllm/settings.h"

namespace ferry {

class GrpcDoor;
class RequestLog;

struct GrpcServerOptions {
  std::string address = "127.0.0.1:50051";  // HOST:PORT; port 0 lets the system choose one
  ServerLimits limits;
  Access access;              // keys and TLS
  vllm::Settings vllm{};      // what vLLM's services tell of the model
  RequestLog* log = nullptr;  // hears of calls for tokens that have ended, and outlives the server; null: nobody does
};

class ProfileControl;

/// Serves ferry.v1.Inference, ferry.v1.Cluster, ferry.v1.Experts, ferry.v1.Profile (if there is one), vLLM's services
/// (vllm/README.md), grpc.health.v1 and server reflection on one address.
///
/// With API keys every method but health checks needs one, and there is no reflection, which would tell anybody. Connections
/// are accepted by a ConnectionAcceptor, so that running out of descriptors passes.
///
/// Any thread may call any method. `engine`, `profile` and `clock` must outlive the server. `clock` is the coordinator's
/// own: requests carry their arrival and deadline in its time. gRPC itself has its own.
class GrpcServer {
 public:
  /// Listens when it returns. Throws Error{kInvalidArgument} for an address that is not HOST:PORT and
  /// Error{kFailedPrecondition} if it cannot be listened on (in use, not this host's).
  GrpcServer(const GrpcServerOptions& options, EngineClient& engine, ProfileControl* profile = nullptr,
             Clock& clock = real_clock());
  /// The same behind a door that listens already; of `options` the address is not used.
  GrpcServer(std::unique_ptr<GrpcDoor> door, const GrpcServerOptions& options, EngineClient& engine,
             ProfileControl* profile = nullptr, Clock& clock = real_clock());
  /// Cancels what is still open.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  /// HOST:PORT with the port that is really used.
  const std::string& address() const;

  /// What health checks say, SERVING (as at first) or NOT_SERVING: the engine is late, drains or has failed. Calls are answered
  /// all the same.
  void set_serving(bool is_serving);

  /// Takes no more requests for tokens and returns when the prompts of those it has are made and submitted; what is still at it
  /// at `deadline` is aborted.
  void finish_prompts(Clock::Time deadline);

  /// Takes no more calls, waits until the open ones are done, cancels them after `grace`, and stops.
  void shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
