#pragma once

#include "runtime/checkpoint/quantization.h"
#include "runtime/model/config.h"
#include "runtime/plan/plan_types.h"

// What a plan counts with of a model and of a host that was not measured: it follows from shapes and roofs alone, nothing is
// read and nothing timed.

namespace ferry {

/// How the model would run.
struct PlanRun {
  Quantization quantization;  // of the weights, resolved
  DType dtype = DType::kBF16;
  DType kv_dtype = DType::kBF16;  // of keys and values in the cache
  bool screens_lm_head = false;   // greedy tokens are found with a copy of lm_head in 8 bits
};

/// Bytes of weights (the copy that screens lm_head included), of caches and of rows between ranks. Runs whose costs differ have
/// other shapes. Throws Error{kInvalidArgument} if lm_head is to be screened and is not bf16.
PlanModel plan_model(const ModelConfig& config, const PlanRun& run);

/// Sets costs that follow from the host's roofs, of a host that was not measured: weights are read at kPlanReadShare of what
/// memory gives, multiply-adds reach kPlanMultiplyShare of what registers do; both are what Ferry's benchmarks reach on models
/// of 8 GB and more.
void cost_by_roofs(PlanHost& host, const ModelConfig& config, const PlanRun& run, const PlanModel& model);
inline constexpr double kPlanReadShare = 0.65;
inline constexpr double kPlanMultiplyShare = 0.15;

}  // namespace ferry
