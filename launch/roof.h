#pragma once

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/thread_pool.h"
#include "runtime/base/types.h"

namespace ferry {

/// Measures what the machine can do at best with the threads of `pool`. On a shared host that moves, so a benchmark probes
/// right before and right after what it times.
class RoofProbe {
 public:
  /// Allocates and touches the stream, far larger than the caches.
  explicit RoofProbe(ThreadPool& pool);

  /// Bytes per second from memory, one forward stream a thread; the best of a few passes (about 0.2 s).
  double read_bytes_per_s();
  /// Multiply-adds in registers, two operations each, with factors of `dtype` (about 0.1 s).
  double flops_per_s(DType dtype);

 private:
  ThreadPool& pool_;
  AlignedBuffer stream_;
};

}  // namespace ferry
