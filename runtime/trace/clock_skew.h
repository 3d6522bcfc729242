#pragma once

#include <cstdint>

namespace ferry {

/// Makes a rank's clock differ from its host's, to test how captures are aligned.
struct ClockSkew {
  int32_t rank = -1;      // none
  int64_t offset_ns = 0;  // the rank's clock minus the host's
  double drift_ppm = 0;
};

}  // namespace ferry
