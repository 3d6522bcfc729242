#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tensor.h"

namespace ferry::vulkan {

/// Bytes of a device's memory.
struct Range {
  uint64_t begin = 0, end = 0;  // addresses

  template <class T>
  static Range of(const T* first, int64_t count) {
    const auto begin = reinterpret_cast<uint64_t>(first);
    return {begin, begin + static_cast<uint64_t>(count) * sizeof(T)};
  }
  /// From the first element of a matrix to its last, with what lies between its rows.
  static Range of(ConstMatrixView rows);

  bool is_empty() const { return begin >= end; }
  bool meets(Range other) const { return !is_empty() && !other.is_empty() && begin < other.end && other.begin < end; }
};

/// What a dispatch or a copy touches.
struct Access {
  std::vector<Range> reads, writes;

  void clear() {
    reads.clear();
    writes.clear();
  }
};

/// Knows what has been touched since the last barrier, and so whether the next one needs one in front of it: if it would read
/// or write what was written, or write what was read.
class Hazards {
 public:
  bool meets(const Access& next) const;
  void add(const Access& next);
  /// After a barrier.
  void clear() { touched_.clear(); }

 private:
  Access touched_;
};

}  // namespace ferry::vulkan
