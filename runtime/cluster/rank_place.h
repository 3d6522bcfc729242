#pragma once

#include "runtime/base/types.h"
#include "runtime/cluster/core_policy.h"

namespace ferry {

/// Where a rank is: its number in the job, which one it is of those on its host, and the cores it has.
struct RankPlace {
  Rank rank{0};
  int local_rank = 0;
  CorePolicy cores;

  bool is_coordinator() const { return cores.is_coordinator; }
};

}  // namespace ferry
