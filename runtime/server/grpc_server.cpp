#include "runtime/server/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/server/cluster_service.h"
#include "runtime/server/connection_acceptor.h"
#include "runtime/server/descriptor_limit.h"
#include "runtime/server/experts_service.h"
#include "runtime/server/generate_context.h"
#include "runtime/server/generate_request.h"
#include "runtime/server/generate_service.h"
#include "runtime/server/profile_service.h"
#include "runtime/server/vllm/services.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kHandshakeTimeout = seconds(10);    // of TLS and of HTTP/2's first frame
constexpr milliseconds kKeepAlivePeriod = seconds(60);     // without a word from a client, until it is asked for one
constexpr milliseconds kKeepAliveTimeout = seconds(20);    // for its answer
constexpr milliseconds kShortestPingPeriod = seconds(10);  // of a client's pings; one that pings more often is cut off
constexpr int kMaxBlockingThreads = 16;  // of services whose methods block: Cluster, Experts, Profile, reflection

/// Keeps gRPC's own log quiet for a while: what it would say is in the Error that follows.
class QuietLog {
 public:
  QuietLog() {
    gpr_set_log_function([](gpr_log_func_args*) {});
  }
  ~QuietLog() { gpr_set_log_function(nullptr); }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
};

/// Decides for one server whether it has reflection; linked in, gRPC's library adds it to all.
class Reflection final : public grpc::ServerBuilderOption {
 public:
  explicit Reflection(bool is_wanted) : is_wanted_(is_wanted) {}
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    auto own = std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>();
    std::erase_if(*plugins, [&](const auto& plugin) { return plugin->name() == own->name(); });
    if (is_wanted_) plugins->push_back(std::move(own));
  }

 private:
  const bool is_wanted_;
};

std::shared_ptr<grpc::ServerCredentials> credentials_of(const std::optional<TlsIdentity>& tls) {
  if (!tls) return grpc::InsecureServerCredentials();
  const bool wants_client = !tls->client_ca.empty();
  grpc::SslServerCredentialsOptions options(wants_client ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                                         : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.pem_root_certs = tls->client_ca;
  options.pem_key_cert_pairs.push_back({tls->private_key, tls->certificate_chain});
  return grpc::SslServerCredentials(options);
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

/// The most bytes that a request can have which any service would accept: what is longer need not be received.
int64_t longest_request(const EngineClient& engine, const ServerLimits& limits) {
  if (engine.model_info().takes_media) return limits.grpc_message_bytes;
  const PromptBounds bounds = engine.prompt_bounds();
  const int64_t vocab_size = engine.model_info().vocab_size;
  const int64_t placement = std::min(longest_placement(*engine.experts().placed().placement), limits.grpc_message_bytes);
  return std::max({longest_message(limits, bounds, vocab_size), vllm::longest_message(limits, bounds, vocab_size), placement});
}

}  // namespace

class GrpcServer::Impl {
 public:
  Impl(const GrpcServerOptions& options, EngineClient& engine, ProfileControl* profile)
      : keys_(options.access.keys),
        acceptor_("grpc", options.address, static_cast<int>(affordable_connections(options.limits.grpc_connections))),
        calls_(engine, options.limits) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(static_cast<int>(longest_request(engine, calls_.limits)));
    builder.SetMaxSendMessageSize(static_cast<int>(options.limits.grpc_message_bytes));
    bound_connections(builder, options.limits);
    using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    connections_ = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials_of(options.access.tls));
    make_services(options.vllm, profile);
    for (const std::shared_ptr<grpc::Service>& service : services_) builder.RegisterService(service.get());
    builder.SetOption(std::make_unique<Reflection>(keys_.empty()));
    {
      const QuietLog quiet;
      server_ = builder.BuildAndStart();
    }
    if (server_ == nullptr) throw Error(ErrorCode::kFailedPrecondition, "cannot serve grpc on " + options.address);
    set_serving(true);
    acceptor_.start([this](int fd) { hand_over(fd); });
  }

  ~Impl() { shutdown(milliseconds(0)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::string& address() const { return acceptor_.address(); }

  void set_serving(bool is_serving) {
    is_serving_ = is_serving;
    grpc::HealthCheckServiceInterface& health = *server_->GetHealthCheckService();
    health.SetServingStatus(is_serving);
    for (const char* name : {kInferenceServiceName, vllm::kEngineServiceName, vllm::kInferenceServiceName})
      health.SetServingStatus(name, is_serving);
  }

  void finish_prompts(std::chrono::steady_clock::time_point deadline) { calls_.preparations.drain(deadline); }

  void shutdown(milliseconds grace) {
    const std::lock_guard lock(shutdown_mutex_);
    if (is_shut_down_) return;
    is_shut_down_ = true;
    acceptor_.stop();
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_->Wait();
  }

 private:
  void make_services(vllm::Settings settings, ProfileControl* profile) {
    services_.push_back(make_generate_service(calls_, keys_));
    services_.push_back(make_cluster_service(calls_.engine, keys_));
    services_.push_back(make_experts_service(calls_.engine, keys_));
    if (profile != nullptr) services_.push_back(make_profile_service(*profile, keys_));
    if (settings.model_names.empty()) settings.model_names = {calls_.engine.model_info().name};
    const vllm::ServiceContext shared{
        .calls = calls_, .keys = keys_, .settings = std::move(settings), .is_serving = is_serving_, .profile = profile};
    services_.push_back(vllm::make_engine_service(shared));
    services_.push_back(vllm::make_inference_service(shared));
    services_.push_back(vllm::make_control_service(shared));
  }

  void hand_over(int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    connections_->HandleNewConnection(&connection);
  }

  const ApiKeys keys_;
  ConnectionAcceptor acceptor_;
  GenerateContext calls_;
  std::atomic<bool> is_serving_{false};
  std::vector<std::shared_ptr<grpc::Service>> services_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> server_;  // destroyed before the services
  std::mutex shutdown_mutex_;
  bool is_shut_down_ = false;
};

GrpcServer::GrpcServer(const GrpcServerOptions& options, EngineClient& engine, ProfileControl* profile)
    : impl_(std::make_unique<Impl>(options, engine, profile)) {}
GrpcServer::~GrpcServer() = default;
const std::string& GrpcServer::address() const { return impl_->address(); }
void GrpcServer::set_serving(bool is_serving) { impl_->set_serving(is_serving); }
void GrpcServer::finish_prompts(std::chrono::steady_clock::time_point deadline) { impl_->finish_prompts(deadline); }
void GrpcServer::shutdown(std::chrono::milliseconds grace) { impl_->shutdown(grace); }

}  // namespace ferry
