#include "runtime/server/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <mutex>

#include "runtime/base/error.h"
#include "runtime/server/generate_service.h"
#include "runtime/server/host_port.h"
#include "runtime/server/profile_service.h"

namespace ferry {
namespace {

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

}  // namespace

class GrpcServer::Impl {
 public:
  Impl(const GrpcServerOptions& options, Backend& backend, ProfileControl* profile) : service_(make_generate_service(backend)) {
    const std::string host = parse_host_port("grpc", options.address).host;
    grpc::EnableDefaultHealthCheckService(true);
    static std::once_flag reflection_once;  // the plugin registers itself for all servers to come
    std::call_once(reflection_once, [] { grpc::reflection::InitProtoReflectionServerBuilderPlugin(); });

    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // an address in use must be an error, not a shared port
    builder.SetMaxReceiveMessageSize(options.max_message_bytes);
    builder.SetMaxSendMessageSize(options.max_message_bytes);
    builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    if (profile != nullptr) {
      profile_service_ = make_profile_service(*profile);
      builder.RegisterService(profile_service_.get());
    }
    {
      const QuietLog quiet;
      server_ = builder.BuildAndStart();
    }
    if (server_ == nullptr || port == 0) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "cannot serve grpc on " + options.address + ": the address is in use or does not belong to this host");
    }
    address_ = host + ":" + std::to_string(port);
    server_->GetHealthCheckService()->SetServingStatus(kInferenceServiceName, true);
  }

  ~Impl() {
    if (server_ != nullptr) shutdown(std::chrono::milliseconds(0));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::string& address() const { return address_; }

  void set_not_serving() { server_->GetHealthCheckService()->SetServingStatus(false); }

  void shutdown(std::chrono::milliseconds grace) {
    const std::lock_guard lock(shutdown_mutex_);
    if (is_shut_down_) return;
    is_shut_down_ = true;
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_->Wait();
  }

 private:
  std::shared_ptr<grpc::Service> service_;  // shared_ptr for its deleter: grpc::Service is incomplete where it is made known
  std::shared_ptr<grpc::Service> profile_service_;
  std::unique_ptr<grpc::Server> server_;  // destroyed before the services
  std::string address_;
  std::mutex shutdown_mutex_;
  bool is_shut_down_ = false;
};

GrpcServer::GrpcServer(const GrpcServerOptions& options, Backend& backend, ProfileControl* profile)
    : impl_(std::make_unique<Impl>(options, backend, profile)) {}
GrpcServer::~GrpcServer() = default;
const std::string& GrpcServer::address() const { return impl_->address(); }
void GrpcServer::set_not_serving() { impl_->set_not_serving(); }
void GrpcServer::shutdown(std::chrono::milliseconds grace) { impl_->shutdown(grace); }

}  // namespace ferry
