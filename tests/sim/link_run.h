#pragma once

#include "tests/sim/sim_links.h"
#include "tests/sim/sim_result.h"

namespace ferry::sim {

/// Plays one job whose rows travel over links: workers are lost, come and go while its requests are answered.
SimResult play_over_links(const SimPlan& plan, const Workload& workload, RankThreads& threads, EventLog& log,
                          LinkBug bug = LinkBug::kNone);

}  // namespace ferry::sim
