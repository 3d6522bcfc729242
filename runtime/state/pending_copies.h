#pragma once

#include <cstdint>

#include "kernels/stream.h"

namespace ferry {

/// Bounds what a device's stream holds of copies between it and the host: it has memory for each until they have run, so from
/// time to time they are waited for.
class PendingCopies {
 public:
  /// So many bytes were handed to the stream.
  void add(Stream& stream, int64_t bytes) {
    if (stream.is_on_host()) return;
    bytes_ += bytes;
    if (bytes_ < kMaxBytes) return;
    stream.wait(stream.submit());
    bytes_ = 0;
  }

 private:
  static constexpr int64_t kMaxBytes = int64_t{16} << 20;

  int64_t bytes_ = 0;  // since the stream was last waited for
};

}  // namespace ferry
