#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "kernels/roof_probe.h"
#include "runtime/base/clock.h"
#include "runtime/base/thread_pool.h"
#include "runtime/base/types.h"

namespace ferry {

/// How the threads share what they read together.
enum class ReadSharing : uint8_t {
  kParts,   // a part each, the same one in every round: what fits a core's own cache stays there
  kPieces,  // pieces, each taken by whoever is free: no thread waits for one that lost its core
};

/// Measures what the machine can do at best with the threads of `pool`. On a shared host that moves, so a benchmark probes
/// right before and right after what it times.
class RoofProbe {
 public:
  static constexpr std::size_t kStreamBytes = std::size_t{1} << 30;  // far larger than the caches

  /// Takes the stream's memory, in huge pages where the system has them, and touches it with the threads that will read it.
  /// Throws Error{kResourceExhausted} if the system refuses.
  explicit RoofProbe(ThreadPool& pool, std::size_t stream_bytes = kStreamBytes, Clock& clock = real_clock());

  /// Bytes per second of reading `num_bytes` (at most the stream) again and again: the best of all ways to share and to walk,
  /// two passes each, which take turns: sixteen passes, each of 32 MiB a thread at least. What works on as many bytes cannot
  /// read faster: where they fit a cache, this reads from that cache. Of less than 16 KiB a thread, as of those: that is the
  /// first level.
  double read_bytes_per_s(std::size_t num_bytes = kStreamBytes) { return best_bytes_per_s(num_bytes, StreamAccess::kRead); }
  /// Likewise of reading and writing back, where each byte counts twice. A part for each thread, as states have.
  double rewrite_bytes_per_s(std::size_t num_bytes) { return best_bytes_per_s(num_bytes, StreamAccess::kRewrite); }
  /// One way by itself, one pass. Pieces are only read: two threads may be at the same one.
  double read_bytes_per_s(std::size_t num_bytes, ReadSharing sharing, StreamPattern pattern);

  /// Multiply-adds in registers, two operations each, with factors of `dtype`, kI8 among them, and the instructions of `matmul`
  /// (see multiply_unit; about 0.1 s).
  double flops_per_s(DType dtype, std::string_view matmul = "");

 private:
  double seconds_since(Clock::Time start) const;
  std::size_t usable_bytes(std::size_t num_bytes) const;
  int64_t rounds_of(std::size_t bytes) const;
  double best_bytes_per_s(std::size_t num_bytes, StreamAccess access);
  double parts_bytes_per_s(std::size_t num_bytes, StreamPattern pattern, StreamAccess access);
  double pieces_bytes_per_s(std::size_t num_bytes, StreamPattern pattern);

  ThreadPool& pool_;
  Clock& clock_;
  std::size_t stream_bytes_;
  std::shared_ptr<std::byte> stream_;
};

}  // namespace ferry
