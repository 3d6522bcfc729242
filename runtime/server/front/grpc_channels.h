#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/options/server_limits.h"
#include "runtime/server/front/coordinator_pool.h"
#include "runtime/server/front/front_mark.h"
#include "runtime/server/front/front_times.h"

namespace ferry {

/// A channel to each coordinator that has a gRPC port, in plain text. They connect when they are first used, and again, within
/// a second, when a coordinator is back. Any thread may call any method.
class GrpcChannels {
 public:
  GrpcChannels(const CoordinatorPool& pool, const ServerLimits& limits, const FrontTimes& times);

  /// Of a coordinator that has a gRPC port.
  grpc::GenericStub& stub(std::size_t coordinator) { return *stubs_[coordinator]; }
  /// Whether a call that has just failed may have failed because the coordinator is not there: a coordinator that says no
  /// itself leaves its connection standing.
  bool is_connected(std::size_t coordinator) const;
  /// For the answers to a broadcast.
  std::chrono::milliseconds broadcast_time() const { return broadcast_time_; }

 private:
  const std::chrono::milliseconds broadcast_time_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;  // null where there is no port
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
};

/// What a coordinator is told of a call beside its messages: its deadline and metadata, but for what is about the connection,
/// and the front's mark.
void copy_call(const grpc::CallbackServerContext& from, const FrontMark& mark, grpc::ClientContext& to);

/// Asks each of `coordinators` (at least one) for the same, in one message with one answer, and tells `on_done`, on any thread,
/// when all have answered or have failed to within the deadline, GrpcChannels::broadcast_time() at most.
struct BroadcastAnswer {
  std::size_t coordinator = 0;
  grpc::Status status;
  grpc::ByteBuffer message;
};
struct BroadcastQuestion {
  const std::string& method;
  const grpc::CallbackServerContext& call;
  const FrontMark& mark;
  const grpc::ByteBuffer& message;
};
void broadcast(GrpcChannels& channels, const std::vector<std::size_t>& coordinators, const BroadcastQuestion& question,
               std::function<void(std::vector<BroadcastAnswer> answers)> on_done);

}  // namespace ferry
