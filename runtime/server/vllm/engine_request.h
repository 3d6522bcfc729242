#pragma once

#include "runtime/server/vllm/generate_fields.h"
#include "vllm/engine.pb.h"

namespace ferry::vllm {

/// What a request of VllmEngine/Generate means. Throws Error{kInvalidArgument} that names the field, its value and what is
/// allowed: for what is wrong or too large, and for what would change the answer and is not served.
GenerateFields read_engine_request(const ::vllm::grpc::engine::GenerateRequest& message, const ServerLimits& limits);

}  // namespace ferry::vllm
