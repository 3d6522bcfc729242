#pragma once

#include <cstdint>

namespace ferry {

/// How a picture or a video is cut into patches: steps of time, rows and columns. A picture has one step.
struct Grid {
  int64_t t = 0;
  int64_t h = 0;
  int64_t w = 0;

  int64_t num_patches() const { return t * h * w; }
  /// Of one step.
  int64_t step_patches() const { return h * w; }
  bool operator==(const Grid&) const = default;
};

}  // namespace ferry
