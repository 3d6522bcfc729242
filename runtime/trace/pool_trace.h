#pragma once

#include "runtime/base/thread_pool.h"

namespace ferry {

/// Puts a pool's threads into the trace: each has a lane, with its shares at TraceLevel::kThreads.
class PoolTrace final : public ThreadPoolObserver {
 public:
  void thread_started(int thread_idx) override;
  void share_begins() override;
  void share_ends(int64_t num_tasks) override;
};

}  // namespace ferry
