#pragma once

#include <cstdint>
#include <string>

#include "runtime/model/config.h"
#include "runtime/options/engine_options.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/state/kv_cache.h"
#include "runtime/state/recurrent_state.h"

namespace ferry {

/// How --memory is shared out, and the limits that the scheduler keeps because of it.
struct CachePlan {
  KvCacheOptions kv_cache;
  RecurrentStateOptions recurrent_state;
  SchedulerOptions scheduler;
  int64_t bytes = 0;           // of both caches
  int64_t whole_context = 0;   // tokens, of the checkpoint or --max-context, of which the scheduler's limit may be a part
  std::string bytes_text;      // what takes these bytes, with the option, for who complains
  int64_t swap_bytes = 0;      // of the host, once all of the swap space is in use
  int64_t snapshot_bytes = 0;  // likewise, once as many states are saved as can be
  int64_t unit_bytes = 0;      // of keys and values of a unit of the prefix cache

  /// How many sequences of how many tokens there is room for, and what would hold the whole context if that is cut.
  std::string describe() const;
};

/// `dtype` is the run's, `speculation` what choose_speculation() made of the options. Throws Error{kInvalidArgument} for
/// options that contradict each other or the checkpoint. Allocates nothing large.
CachePlan plan_caches(const EngineOptions& options, const ModelConfig& config, DType dtype, const Speculation& speculation);

}  // namespace ferry
