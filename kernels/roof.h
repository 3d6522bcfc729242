#pragma once

#include <cstddef>
#include <string_view>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/thread_pool.h"
#include "runtime/base/types.h"

namespace ferry {

/// Measures what the machine can do at best with the threads of `pool`. On a shared host that moves, so a benchmark probes
/// right before and right after what it times.
class RoofProbe {
 public:
  static constexpr std::size_t kStreamBytes = std::size_t{512} << 20;  // far larger than the caches

  /// Allocates and touches the stream.
  explicit RoofProbe(ThreadPool& pool, std::size_t stream_bytes = kStreamBytes);

  /// Bytes per second from memory, one forward stream a thread; the best of a few passes (about 0.2 s).
  double read_bytes_per_s();
  /// Multiply-adds in registers, two operations each, with factors of `dtype`, kI8 among them, and the instructions of `matmul`
  /// (see multiply_unit; about 0.1 s).
  double flops_per_s(DType dtype, std::string_view matmul = "");

 private:
  ThreadPool& pool_;
  std::size_t stream_bytes_;
  AlignedBuffer stream_;
};

}  // namespace ferry
