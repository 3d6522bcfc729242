#pragma once

#include "runtime/model/config.h"
#include "runtime/options/engine_options.h"
#include "runtime/plan/hosts_file.h"
#include "runtime/plan/plan_types.h"

// What steps of a model cost on this machine: its own operators on its own weights, for some seconds.

namespace ferry {

/// Of a model with these weights; `quantization` is resolved. What follows from shapes alone, nothing is read.
PlanModel plan_model(const ModelConfig& config, const Quantization& quantization, DType dtype);

/// This machine: roofs, a link between two of its processes, and, by running them, the costs of the coordinator's layers and of
/// experts, as many as a quarter of the memory takes. On the CPU, with all threads that `options` allow. Throws Error as
/// loading does.
HostEntry measure_host(const EngineOptions& options, const ModelConfig& config, const PlanModel& model);

/// Sets costs that follow from the host's roofs, of a host that was not measured: weights are read at kPlanReadShare of what
/// memory gives, multiply-adds reach kPlanMultiplyShare of what registers do; both are what Ferry's benchmarks reach on models
/// of 8 GB and more.
void cost_by_roofs(PlanHost& host, const ModelConfig& config, const Quantization& quantization, DType dtype,
                   const PlanModel& model);
inline constexpr double kPlanReadShare = 0.65;
inline constexpr double kPlanMultiplyShare = 0.15;

}  // namespace ferry
