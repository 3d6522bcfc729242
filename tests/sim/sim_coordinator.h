#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "runtime/schedule/scheduler.h"
#include "tests/sim/sim_plan.h"
#include "tests/sim/workload.h"

namespace ferry::sim {

/// How a request ended.
struct Outcome {
  std::vector<TokenId> tokens;
  FinishReason reason = FinishReason::kNone;
  int num_ends = 0;  // last events: exactly one is right
};

/// Rank 0 as runtime/coordinator.cpp runs it, in virtual time and on the thread that plays the rank: takes requests as they
/// come, steps, looks after workers, says now and then that it is alive, and tells every open request when the engine fails.
class SimCoordinator {
 public:
  struct Surroundings {
    /// Waits until a time has come, or something that ends the rank.
    std::function<void(Deadline until)> sleep;
    /// What ends the job though nobody waits for it; empty: nothing has.
    std::function<std::string()> loss;
    /// Before a step.
    std::function<void(int64_t step)> begin_step;
    /// Looks at the engine, again and again.
    std::function<void(const Engine& engine, uint32_t epoch)> look;
    /// When the engine is about to go.
    std::function<void()> leave;
  };

  SimCoordinator(const SimPlan& plan, const Workload& workload, Surroundings surroundings);

  /// The whole life of the rank. Throws what ended the engine early; outcomes are complete in either case.
  void run(Cluster& cluster);

  /// False if a rank could not load or did not agree: no client was served.
  bool has_started() const { return scheduler_.has_value(); }
  const std::vector<Outcome>& outcomes() const { return outcomes_; }
  /// What was wrong with the capture that was asked for; empty if it was right, absent if there is none.
  const std::optional<std::string>& capture_complaint() const { return capture_complaint_; }

 private:
  void serve(Engine& engine);
  /// Moves what has come by now to the scheduler, and what was given up.
  void take_requests(Deadline now);
  /// Sleeps, if there is nothing to do; false when nothing will ever come.
  bool wait_for_work(Engine& engine);
  /// Until `next` at most, and looks after workers meanwhile.
  void idle(Engine& engine, Deadline next);
  void look(Engine& engine) { surroundings_.look(engine, engine.dispatcher().placement().epoch()); }
  /// Asks for the capture, lets it take its turn, looks at it when it is complete.
  void trace(Engine& engine, Deadline now, bool ran_step);
  void take_finished();
  /// Every open request hears that the engine cannot go on.
  void fail_all(Engine& engine);
  Deadline time(Duration since_start) const { return start_ + since_start; }

  const SimPlan& plan_;
  const Workload& workload_;
  const Surroundings surroundings_;
  LinkHub* hub_ = nullptr;  // while it runs
  Deadline start_;
  std::optional<Scheduler> scheduler_;  // once the engine has started
  std::size_t next_request_ = 0;
  bool wants_snapshot_;
  std::vector<Sequence*> open_;    // [requests] that have come, neither given up nor ended
  std::vector<Outcome> outcomes_;  // [requests]
  std::optional<std::string> capture_complaint_;
};

}  // namespace ferry::sim
