#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/faulty/event_log.h"
#include "comm/faulty/faulty_network.h"
#include "comm/faulty/virtual_time.h"
#include "runtime/base/error.h"
#include "runtime/cluster.h"
#include "tests/sim/planned_faults.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_plan.h"
#include "tests/sim/sim_result.h"
#include "tests/sim/workload.h"

namespace ferry::sim {

/// One job on the way, whatever its rows travel over: the clock and the network of its ranks, its coordinator, how each rank
/// ends, and what of that must not be. What rows travel over says how a rank is played, when the coordinator's waits end and
/// which end is allowed. Every call but play() comes from the thread whose turn it is.
class SimJob {
 public:
  SimJob(const SimJob&) = delete;
  SimJob& operator=(const SimJob&) = delete;

  /// Plays every rank to its end and judges the run. Once.
  SimResult play();

 protected:
  /// Both plans, the workload, the threads and the log outlive the job. `followed` is what its ranks go by; `plan`, by which it
  /// is judged, if no bug is planted into them.
  SimJob(const SimPlan& plan, const SimPlan& followed, const Workload& workload, RankThreads& threads, EventLog& log,
         FaultyNetwork::Bug bug);
  virtual ~SimJob() = default;

  /// The whole life of a rank. Throws what ends it early: Error, or RankKilled.
  virtual void play_rank(Rank rank) = 0;
  /// A rank has come to its end, in whatever way.
  virtual void end_rank(Rank /*rank*/) {}

  // The coordinator's surroundings.
  virtual void sleep(Deadline until) = 0;
  virtual std::string loss() const { return {}; }
  virtual void look(const Engine& /*engine*/, uint32_t /*epoch*/) {}
  virtual void leave() {}

  /// Nothing has happened that may keep a rank out of the capture.
  virtual bool must_capture_all() const = 0;
  /// Whether an error that ended `rank` blames somebody whom a fault touched.
  virtual bool blames_rightly(Rank rank, const Error& error) = 0;
  /// What else must not be.
  virtual void judge_more() {}

  /// The coordinator serves, or the worker works, in `cluster`. Throws what ends it early.
  void run_role(Rank rank, Cluster& cluster);
  /// Says once what must not be.
  void fail(const std::string& what);

  const SimPlan& plan() const { return plan_; }
  const SimPlan& followed() const { return followed_; }
  const Workload& workload() const { return workload_; }
  VirtualTime& time() { return time_; }
  FaultyNetwork& network() { return network_; }
  const FaultyNetwork& network() const { return network_; }
  const SimCoordinator& coordinator() const { return coordinator_; }
  SimResult& result() { return result_; }

 private:
  void run_rank(Rank rank);
  void judge();
  /// A rank may end in an error only after a fault, by a code that says what it is, and must name a rank that the fault
  /// touched.
  void judge_error(Rank rank, const Error& error);

  const SimPlan& plan_;
  const SimPlan& followed_;
  const Workload& workload_;
  EventLog& log_;
  VirtualTime time_;
  FaultyNetwork network_;
  PlannedFaults planned_;
  SimCoordinator coordinator_;
  std::vector<bool> is_done_;                 // [ranks] that came to the end they were to come to
  std::vector<std::optional<Error>> errors_;  // [ranks] that ended them
  SimResult result_;
};

}  // namespace ferry::sim
