#pragma once

#include "runtime/server/vllm/generate_fields.h"
#include "runtime/server/vllm/settings.h"
#include "vllm/inference.pb.h"

namespace ferry::vllm {

/// What a request of vllm.Inference means. Throws as read_engine_request(), and Error{kNotFound} for a model that is not
/// served.
GenerateFields read_inference_request(const ::vllm::GenerateRequest& message, const Settings& settings,
                                      const ServerLimits& limits);

}  // namespace ferry::vllm
