#pragma once

#include <cstdint>

#include "runtime/base/types.h"

namespace ferry {

/// How the ranks that a launcher started share the work: the first `num_coordinators` are coordinators, all others are workers
/// of each of them. A coordinator and the workers have numbers of their own, in which it is rank 0 and they are
/// 1 … num_workers(); with one coordinator these are the launcher's.
struct JobShape {
  int num_ranks = 1;
  int num_coordinators = 1;  // 1 … num_ranks

  int num_workers() const { return num_ranks - num_coordinators; }
  bool is_coordinator(Rank launched) const { return launched.value < num_coordinators; }
  /// What the rank is to its coordinator.
  Rank in_job(Rank launched) const { return is_coordinator(launched) ? Rank{0} : Rank{launched.value - num_coordinators + 1}; }
  /// What the launcher calls worker `in_job`, 1 … num_workers().
  Rank launched(Rank in_job) const { return Rank{in_job.value - 1 + num_coordinators}; }
};

}  // namespace ferry
