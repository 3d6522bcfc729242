#pragma once

#include <functional>

#include "runtime/base/types.h"
#include "runtime/cluster/core_policy.h"

namespace ferry {

/// Where a rank is: its number in the job, which one it is of those on its host, and the cores it has.
struct RankPlace {
  Rank rank{0};
  int local_rank = 0;
  CorePolicy cores;
  // Where ranks are threads that take turns, as in a simulation: whether the rank does now, in its own turn, what it otherwise
  // leaves to a thread beside its work. Empty: it has such threads.
  std::function<bool()> works_now = {};

  bool is_coordinator() const { return cores.is_coordinator; }
};

}  // namespace ferry
