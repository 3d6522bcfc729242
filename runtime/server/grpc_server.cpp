#include "runtime/server/grpc_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/server/bounded_service.h"
#include "runtime/server/cluster_service.h"
#include "runtime/server/experts_service.h"
#include "runtime/server/generate_context.h"
#include "runtime/server/generate_request.h"
#include "runtime/server/generate_service.h"
#include "runtime/server/grpc_door.h"
#include "runtime/server/parsed_bytes.h"
#include "runtime/server/profile_service.h"
#include "runtime/server/reflection/reflection_service.h"
#include "runtime/server/vllm/services.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kChatMessageBytes = 512;  // in memory, of one chat message beside its text

/// The most bytes that a request without pictures can have which any service would accept.
int64_t longest_without_media(const EngineClient& engine, const ServerLimits& limits) {
  const PromptBounds bounds = engine.prompt_bounds();
  const int64_t vocab_size = engine.model_info().vocab_size;
  const int64_t placement = std::min(longest_placement(*engine.experts().placed().placement), limits.grpc_message_bytes);
  return std::max({longest_message(limits, bounds, vocab_size), vllm::longest_message(limits, bounds, vocab_size), placement});
}

/// Of any request: what is longer need not be received.
int64_t longest_request(const EngineClient& engine, const ServerLimits& limits) {
  return engine.model_info().takes_media ? limits.grpc_message_bytes : longest_without_media(engine, limits);
}

/// The most memory that such a request takes once it is parsed. Texts and pictures take a byte for a byte; ids, for which
/// longest_without_media() has five, eight.
int64_t largest_request(const EngineClient& engine, const ServerLimits& limits) {
  const int64_t contents = std::max(longest_request(engine, limits), 2 * longest_without_media(engine, limits));
  return contents + kMessagePartsBytes + limits.chat_messages * kChatMessageBytes;
}

}  // namespace

class GrpcServer::Impl {
 public:
  Impl(std::unique_ptr<GrpcDoor> door, const GrpcServerOptions& options, EngineClient& engine, ProfileControl* profile,
       Clock& clock)
      : keys_(options.access.keys), door_(std::move(door)), calls_(engine, options.limits, clock, options.log) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(static_cast<int>(longest_request(engine, calls_.limits)));
    builder.SetMaxSendMessageSize(static_cast<int>(options.limits.grpc_message_bytes));
    door_->prepare(builder, options.access);
    make_services(options.vllm, profile);
    for (const std::shared_ptr<grpc::Service>& service : services_) builder.RegisterService(service.get());
    server_ = door_->build(builder);
    set_serving(true);
    door_->open();
  }

  ~Impl() { shutdown(milliseconds(0)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::string& address() const { return door_->address(); }

  void set_serving(bool is_serving) {
    is_serving_ = is_serving;
    grpc::HealthCheckServiceInterface& health = *server_->GetHealthCheckService();
    health.SetServingStatus(is_serving);
    for (const char* name : {kInferenceServiceName, vllm::kEngineServiceName, vllm::kInferenceServiceName})
      health.SetServingStatus(name, is_serving);
  }

  void finish_prompts(Clock::Time deadline) { calls_.preparations.drain(deadline); }

  void shutdown(milliseconds grace) { door_->shutdown(*server_, grace); }

 private:
  void make_services(vllm::Settings settings, ProfileControl* profile) {
    const int64_t most = largest_request(calls_.engine, calls_.limits);
    std::vector<std::string> names = {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"};
    const auto serve = [&](const char* name, std::shared_ptr<grpc::Service> service) {
      names.emplace_back(name);
      services_.push_back(bounded_service(std::move(service), name, most));
    };
    serve(kInferenceServiceName, make_generate_service(calls_, keys_));
    serve(kClusterServiceName, make_cluster_service(calls_.engine, keys_));
    serve(kExpertsServiceName, make_experts_service(calls_.engine, keys_));
    if (profile != nullptr) serve(kProfileServiceName, make_profile_service(*profile, keys_));
    if (settings.model_names.empty()) settings.model_names = {calls_.engine.model_info().name};
    const vllm::ServiceContext shared{
        .calls = calls_, .keys = keys_, .settings = std::move(settings), .is_serving = is_serving_, .profile = profile};
    serve(vllm::kEngineServiceName, vllm::make_engine_service(shared));
    serve(vllm::kInferenceServiceName, vllm::make_inference_service(shared));
    serve(vllm::kControlServiceName, vllm::make_control_service(shared));
    if (keys_.empty()) services_.push_back(make_reflection_service(std::move(names)));
  }

  const ApiKeys keys_;
  const std::unique_ptr<GrpcDoor> door_;
  GenerateContext calls_;
  std::atomic<bool> is_serving_{false};
  std::vector<std::shared_ptr<grpc::Service>> services_;
  std::unique_ptr<grpc::Server> server_;  // destroyed before the services
};

GrpcServer::GrpcServer(const GrpcServerOptions& options, EngineClient& engine, ProfileControl* profile, Clock& clock)
    : GrpcServer(std::make_unique<GrpcDoor>(options.address, options.limits), options, engine, profile, clock) {}
GrpcServer::GrpcServer(std::unique_ptr<GrpcDoor> door, const GrpcServerOptions& options, EngineClient& engine,
                       ProfileControl* profile, Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(door), options, engine, profile, clock)) {}
GrpcServer::~GrpcServer() = default;
const std::string& GrpcServer::address() const { return impl_->address(); }
void GrpcServer::set_serving(bool is_serving) { impl_->set_serving(is_serving); }
void GrpcServer::finish_prompts(Clock::Time deadline) { impl_->finish_prompts(deadline); }
void GrpcServer::shutdown(std::chrono::milliseconds grace) { impl_->shutdown(grace); }

}  // namespace ferry
