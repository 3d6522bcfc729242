#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/types.h"

// What the functions of this folder share. They are pure: plain values in, plain values out, the same on every machine.

namespace ferry {

/// Workers of a job, so that a set of them is a 64-bit mask: bit w is worker w.
inline constexpr int64_t kMaxWorkers = 64;

/// The experts of each worker in one layer, in the order of its slots: [num_workers][≤ slots].
using LayerPlacement = std::vector<std::vector<LogicalExpertId>>;

/// What one worker can take.
struct WorkerCapacity {
  int32_t slots = 0;  // experts of a layer it has memory for; 0: it is not there, and gets none
  double speed = 1;   // work per time, relative to the others: > 0
};

/// The time that an expert with rows takes its worker: reading its weights, and each row. Only ratios count, so any unit will
/// do. arXiv 2512.09277 (METRO) is why the fixed part counts: in decode nearly all of the time is that of the experts touched.
struct ExpertCost {
  double fixed = 1;    // of an expert with any row
  double per_row = 0;  // of each row

  friend bool operator==(const ExpertCost&, const ExpertCost&) = default;
  double of(int64_t rows) const { return rows == 0 ? 0 : fixed + per_row * static_cast<double>(rows); }
};

}  // namespace ferry
