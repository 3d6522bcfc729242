#pragma once

#include "moe/expert_placement.h"
#include "profiler/capture.h"
#include "runtime/cluster.h"
#include "runtime/model/config.h"
#include "runtime/model_info.h"
#include "runtime/schedule/scheduler.h"

// What a run says of itself.

namespace ferry {

/// To clients.
ModelInfo describe_model(const ModelConfig& config, DType dtype, const SchedulerOptions& limits, const Cluster& cluster);

/// To whoever reads a capture of it.
CaptureInfo describe_run(const ModelConfig& config, DType dtype, const Quantization& quantization,
                         const SchedulerOptions& limits, const ExpertPlacement& experts, const Cluster& cluster);

}  // namespace ferry
