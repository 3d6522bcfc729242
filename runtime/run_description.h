#pragma once

#include "moe/routing/routing_trace.h"
#include "profiler/capture.h"
#include "runtime/cluster.h"
#include "runtime/model/config.h"
#include "runtime/model_info.h"
#include "runtime/schedule/scheduler.h"

// What a run says of itself.

namespace ferry {

/// To clients.
ModelInfo describe_model(const ModelConfig& config, DType dtype, DType kv_dtype, const SchedulerOptions& limits,
                         const Cluster& cluster);

/// To whoever reads a capture of it; without its ranks and who holds what, which a capture finds out.
CaptureInfo describe_run(const ModelConfig& config, DType dtype, DType kv_dtype, const Quantization& quantization,
                         const SchedulerOptions& limits, const Cluster& cluster);

/// What the model's routers choose among; no layers if it has none.
RoutingShape routing_shape(const ModelConfig& config);

}  // namespace ferry
