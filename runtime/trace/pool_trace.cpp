#include "runtime/trace/pool_trace.h"

#include <string>

#include "profiler/span.h"

namespace ferry {
namespace {

thread_local uint64_t share_begin = 0;  // ticks; 0: not recorded

}  // namespace

void PoolTrace::thread_started(int thread_idx) { recorder().register_thread("pool " + std::to_string(thread_idx)); }

void PoolTrace::share_begins() { share_begin = is_traced(Zone::kPoolTask) ? now_ticks() : 0; }

void PoolTrace::share_ends(int64_t num_tasks) {
  if (share_begin != 0) record_span(Zone::kPoolTask, share_begin, now_ticks(), static_cast<uint32_t>(num_tasks));
}

}  // namespace ferry
