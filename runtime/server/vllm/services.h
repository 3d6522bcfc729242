#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "runtime/server/access.h"
#include "runtime/server/generate_context.h"
#include "runtime/server/vllm/settings.h"

namespace grpc {
class Service;
}

namespace ferry {
class ProfileControl;
}

namespace ferry::vllm {

// Their fully qualified names.
inline constexpr const char* kEngineServiceName = "vllm.grpc.engine.VllmEngine";
inline constexpr const char* kInferenceServiceName = "vllm.Inference";
inline constexpr const char* kControlServiceName = "vllm.Control";

/// What vLLM's services share; all that is referred to must outlive the server that they are registered with.
struct ServiceContext {
  GenerateContext& calls;
  const ApiKeys& keys;
  const Settings settings;              // with at least one name
  const std::atomic<bool>& is_serving;  // what health checks say
  ProfileControl* const profile;        // null: there are no captures
};

/// vllm.grpc.engine.VllmEngine (proto/vllm/engine.proto). Without a valid key (if there are keys) every method but HealthCheck
/// is UNAUTHENTICATED. Throws as reading the checkpoint's config.json does.
std::shared_ptr<grpc::Service> make_engine_service(const ServiceContext& context);
/// vllm.Inference and vllm.Control (proto/vllm/inference.proto).
std::shared_ptr<grpc::Service> make_inference_service(const ServiceContext& context);
std::shared_ptr<grpc::Service> make_control_service(const ServiceContext& context);

/// The most bytes that a request of theirs within `limits` and `bounds` can have, pictures aside.
int64_t longest_message(const ServerLimits& limits, const PromptBounds& bounds, int64_t vocab_size);

}  // namespace ferry::vllm
