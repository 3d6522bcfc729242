#pragma once

#include "comm/faulty/faulty_network.h"
#include "tests/sim/sim_result.h"

namespace ferry::sim {

/// Plays one job whose rows travel over a group: a coordinator and its workers on a faulty network, from the handshake to the
/// last goodbye. Beside what goes into `log` nothing of a run depends on real time.
SimResult play_over_group(const SimPlan& plan, const Workload& workload, RankThreads& threads, EventLog& log,
                          FaultyNetwork::Bug bug = FaultyNetwork::Bug::kNone);

}  // namespace ferry::sim
