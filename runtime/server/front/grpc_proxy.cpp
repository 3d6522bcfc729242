#include "runtime/server/front/grpc_proxy.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include "runtime/server/caller.h"
#include "runtime/server/front/grpc_call_traits.h"
#include "runtime/server/front/grpc_channels.h"
#include "runtime/server/front/grpc_relay.h"
#include "runtime/server/grpc_door.h"

namespace ferry {
namespace {

constexpr const char* kServices[] = {"ferry.v1.Inference", "vllm.grpc.engine.VllmEngine", "vllm.Inference"};

/// Every method but those of health checks.
class AnyService final : public grpc::CallbackGenericService {
 public:
  AnyService(GrpcRelayContext relays, const ApiKeys& keys) : relays_(relays), keys_(keys) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    const MethodKind kind = method_kind(context->method());
    if (kind != MethodKind::kHealthCheck) {
      const Caller caller = identify_caller(*context, keys_);
      if (!caller.status.ok()) return refuse_call(caller.status);
    }
    if (relays_.mark.is_on(*context)) return refuse_call({grpc::StatusCode::UNAVAILABLE, kLoopMessage});
    switch (kind) {
      case MethodKind::kAbort: return relay_to_all(relays_, *context);
      case MethodKind::kCapture:
        return refuse_call({grpc::StatusCode::UNIMPLEMENTED, "captures are a coordinator's own: ask at its port"});
      case MethodKind::kPrompt:
      case MethodKind::kHealthCheck:
      case MethodKind::kOther: break;
    }
    return relay_call(relays_, *context);
  }

 private:
  GrpcRelayContext relays_;
  const ApiKeys& keys_;
};

}  // namespace

class GrpcProxy::Impl {
 public:
  Impl(const std::string& address, const ServerLimits& limits, const Access& access, CoordinatorPool& pool,
       const FrontMark& mark, const FrontTimes& times)
      : keys_(access.keys), door_(address, limits), channels_(pool, limits, times), service_({pool, channels_, mark}, keys_) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(static_cast<int>(limits.grpc_message_bytes));
    builder.SetMaxSendMessageSize(static_cast<int>(limits.grpc_message_bytes));
    door_.prepare(builder, access);
    builder.RegisterCallbackGenericService(&service_);
    server_ = door_.build(builder);
    door_.open();
  }
  ~Impl() { shutdown(std::chrono::milliseconds(0)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::string& address() const { return door_.address(); }

  void set_serving(bool is_serving) {
    grpc::HealthCheckServiceInterface& health = *server_->GetHealthCheckService();
    health.SetServingStatus(is_serving);
    for (const char* name : kServices) health.SetServingStatus(name, is_serving);
  }

  void shutdown(std::chrono::milliseconds grace) { door_.shutdown(*server_, grace); }

 private:
  const ApiKeys keys_;
  GrpcDoor door_;
  GrpcChannels channels_;
  AnyService service_;
  std::unique_ptr<grpc::Server> server_;
};

GrpcProxy::GrpcProxy(const std::string& address, const ServerLimits& limits, const Access& access, CoordinatorPool& pool,
                     const FrontMark& mark, const FrontTimes& times)
    : impl_(std::make_unique<Impl>(address, limits, access, pool, mark, times)) {}
GrpcProxy::~GrpcProxy() = default;
const std::string& GrpcProxy::address() const { return impl_->address(); }
void GrpcProxy::set_serving(bool is_serving) { impl_->set_serving(is_serving); }
void GrpcProxy::shutdown(std::chrono::milliseconds grace) { impl_->shutdown(grace); }

}  // namespace ferry
