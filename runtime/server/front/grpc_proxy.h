#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "runtime/options/server_limits.h"
#include "runtime/server/access.h"
#include "runtime/server/front/coordinator_pool.h"
#include "runtime/server/front/front_mark.h"
#include "runtime/server/front/front_times.h"

namespace ferry {

/// The gRPC port of a front: calls of any method are passed to a coordinator, message by message, whatever the messages are; of
/// those that have prompts the first message is read, to know where they go. grpc.health.v1 is the front's own.
///
/// Metadata (keys among them), deadlines, cancelling and the coordinator's status and trailing metadata pass. With keys of its
/// own the front asks for one, but for health checks. Memory of a call is bounded by one message each way.
///
/// A call whose first message is all that has been sent, and of whose answer nothing has come, is given to another coordinator,
/// kTriesMax (http_proxy.h) in all, where one answers UNAVAILABLE or cannot be reached; so is one answered that this front has
/// passed on before. Any thread may call any method.
class GrpcProxy {
 public:
  /// Listens when it returns. Throws Error{kInvalidArgument} for an address that is not HOST:PORT and
  /// Error{kFailedPrecondition} if it cannot be listened on. `pool` and `mark` must outlive this. `times` are those of gRPC's
  /// own clock.
  GrpcProxy(const std::string& address, const ServerLimits& limits, const Access& access, CoordinatorPool& pool,
            const FrontMark& mark, const FrontTimes& times = {});
  /// Cancels what is still open.
  ~GrpcProxy();
  GrpcProxy(const GrpcProxy&) = delete;
  GrpcProxy& operator=(const GrpcProxy&) = delete;

  /// HOST:PORT with the port that is really used.
  const std::string& address() const;
  /// What health checks say.
  void set_serving(bool is_serving);
  /// Takes no more calls, waits until the open ones are done, cancels them after `grace`, and stops.
  void shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
