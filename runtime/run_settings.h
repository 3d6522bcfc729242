#pragma once

#include <map>
#include <string>

#include "runtime/options/engine_options.h"
#include "runtime/schedule/scheduler.h"

namespace ferry {

/// What a run does by its options, as a command line says it, those that nobody gave among them: {"--token-budget", "2112"}.
/// `weights` are as they are held, `micro_batch` in rows (0: never).
std::map<std::string, std::string> describe_settings(const EngineOptions& options, const SchedulerOptions& limits,
                                                     const Quantization& weights, DType kv_dtype, int64_t micro_batch);

}  // namespace ferry
