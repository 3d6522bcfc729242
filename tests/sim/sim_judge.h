#pragma once

#include <string>
#include <vector>

#include "comm/faulty/faulty_network.h"
#include "runtime/base/error.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_plan.h"
#include "tests/sim/sim_result.h"
#include "tests/sim/workload.h"

namespace ferry::sim {

/// What is wrong with how the requests of a run ended, and how they ended. `engine_failed`: the coordinator ended in an error,
/// or was killed.
void judge_requests(const SimPlan& plan, const Workload& workload, const SimCoordinator& coordinator, bool engine_failed,
                    SimResult& result);

/// What is wrong with the capture that was asked for in a run where nothing had happened that hinders it.
void judge_capture(const SimPlan& plan, const SimCoordinator& coordinator, SimResult& result);

/// "rank 2 ended in UNAVAILABLE: …"
std::string describe_end(Rank rank, const Error& error);
/// Whether its code says that something is wrong between ranks.
bool is_code_of_faults(const Error& error);
/// Whether its text has "rank N".
bool names(const Error& error, Rank rank);

/// The numbers of a run.
void count(const FaultyNetwork& network, const VirtualTime& time, SimResult& result);

}  // namespace ferry::sim
