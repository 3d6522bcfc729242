#include "runtime/server/grpc_door.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/server/descriptor_limit.h"
#include "runtime/server/library_log.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kHandshakeTimeout = seconds(10);    // of TLS and of HTTP/2's first frame
constexpr milliseconds kKeepAlivePeriod = seconds(60);     // without a word from a client, until it is asked for one
constexpr milliseconds kKeepAliveTimeout = seconds(20);    // for its answer
constexpr milliseconds kShortestPingPeriod = seconds(10);  // of a client's pings; one that pings more often is cut off
constexpr milliseconds kLastWords = seconds(1);            // for what the server said last to reach its clients
constexpr int64_t kDescriptors = 3;      // of a connection: the client's socket, and the pair by which gRPC sees it
constexpr int kMaxBlockingThreads = 16;  // of services whose methods block: Cluster, Experts, Profile

/// Keeps gRPC's own log quiet for a while: what it would say is in the Error that follows.
class QuietLog {
 public:
  QuietLog() {
    gpr_set_log_function([](gpr_log_func_args*) {});
  }
  ~QuietLog() { use_library_log(); }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
};

/// gRPC looks how long a message is when it has unpacked it: a megabyte could become a gigabyte. A call that says to have such
/// messages is told that they are not taken, and there is nothing that would unpack them.
void refuse_compressed_messages(grpc::ServerBuilder& builder) {
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

/// gRPC answers a block of headers between one and two times its own bound with an error. What is longer does not reach it.
ClientRelay::Rules relay_rules(const ServerLimits& limits) {
  return {.max_header_block_bytes = 2 * limits.grpc_metadata_bytes,
          .handshake_timeout = kHandshakeTimeout,
          .write_timeout = kKeepAlivePeriod + kKeepAliveTimeout};
}

int to_ms(double duration_s) { return static_cast<int>(std::min(duration_s * 1e3, 1e9)); }

/// What a connection may cost and how long it may be silent.
void bound_connections(grpc::ServerBuilder& builder, const ServerLimits& limits) {
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(limits.grpc_metadata_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(limits.grpc_streams));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, to_ms(limits.grpc_idle_s));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, static_cast<int>(kHandshakeTimeout.count()));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(kKeepAlivePeriod.count()));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(kKeepAliveTimeout.count()));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             static_cast<int>(kShortestPingPeriod.count()));
  grpc::ResourceQuota quota("ferry");
  quota.Resize(static_cast<std::size_t>(limits.grpc_memory_bytes));
  quota.SetMaxThreads(kMaxBlockingThreads);
  builder.SetResourceQuota(quota);
}

}  // namespace

GrpcDoor::GrpcDoor(const std::string& address, const ServerLimits& limits)
    : limits_(limits),
      asked_address_(address),
      acceptor_("grpc", address, static_cast<int>(affordable_connections(limits.grpc_connections, kDescriptors))) {}

void GrpcDoor::prepare(grpc::ServerBuilder& builder, const Access& access) {
  bound_connections(builder, limits_);
  refuse_compressed_messages(builder);
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  connections_ = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, grpc::InsecureServerCredentials());
  relay_.emplace(relay_rules(limits_), access.tls, [this](int fd) { hand_over(fd); });
}

std::unique_ptr<grpc::Server> GrpcDoor::build(grpc::ServerBuilder& builder) const {
  const QuietLog quiet;
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) throw Error(ErrorCode::kFailedPrecondition, "cannot serve grpc on " + asked_address_);
  return server;
}

void GrpcDoor::refuse_until_open() { start_accepting(); }

void GrpcDoor::open() {
  is_open_ = true;
  if (!is_accepting_) start_accepting();
}

void GrpcDoor::start_accepting() {
  is_accepting_ = true;
  acceptor_.start([this](int fd) { is_open_ ? relay_->add(fd) : static_cast<void>(close(fd)); });
}

void GrpcDoor::shutdown(grpc::Server& server, milliseconds grace) {
  const std::scoped_lock lock(shutdown_mutex_);
  if (is_shut_down_) return;
  is_shut_down_ = true;
  acceptor_.stop();
  relay_->take_no_more();
  server.Shutdown(std::chrono::system_clock::now() + grace);
  server.Wait();
  relay_->stop(kLastWords);
}

void GrpcDoor::hand_over(int fd) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = fd;
  connections_->HandleNewConnection(&connection);
}

}  // namespace ferry
