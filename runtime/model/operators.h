#pragma once

#include <vector>

#include "profiler/operator_facts.h"
#include "runtime/checkpoint/quantization.h"
#include "runtime/model/config.h"

namespace ferry {

/// Every operator of a run of the model, with costs and shapes, as the files of its parts write them down. `dtype` is the
/// run's, `kv_dtype` that of keys and values in the cache. Captures carry the list, and the bench counts with it.
std::vector<OperatorFacts> describe_operators(const ModelConfig& config, const Quantization& quantization, DType dtype,
                                              DType kv_dtype);

/// What to count with where greedy tokens are found with a copy of a bf16 lm_head in 8 bits (kernels/argmax_screen.h): the
/// copy is read and multiplied in its place, but for what is then computed in bf16.
Quantization with_screened_head(const Quantization& quantization);

}  // namespace ferry
