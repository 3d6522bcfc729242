#pragma once

#include <cstdint>

namespace ferry {

/// Who adds up the rows of a token's experts.
enum class CombineMode : uint8_t {
  /// The coordinator, in top-k slot order: every chosen expert's row comes back, and where experts live changes no bit.
  kExact = 0,
  /// Each worker its own experts' rows, in the order of experts, rounded once to the run's dtype; the coordinator adds one row
  /// per worker, in the order of ranks. Fewer rows travel (at most one per token and worker); sums are rounded elsewhere than
  /// in one process, but still depend on nothing but the token and the placement.
  kFast = 1,
};

}  // namespace ferry
