#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "moe/remote/remote_token_dispatcher.h"

// How the workers of a job stand and what became of rows that they did not answer, for whoever watches it.

namespace ferry {

/// A worker at one moment.
struct WorkerSight {
  int32_t rank = 0;
  WorkerState state = WorkerState::kVacant;
  std::string reason;    // of its last change; empty for one that is as it began
  double changed_s = 0;  // when that was: seconds since 1970
  int64_t rows = 0;      // that it has answered
  double speed = 1;      // as learnt: 1 is the median of the workers
  bool is_lost = false;  // it died or could not be reached any more, and did not leave
  WorkerHome home{};     // where it runs; of one that has gone, where it ran
};

/// A change as a line of the log: "rank 2 is masked: rank 2 died (host node1, 10.0.0.5:4711; 2026-11-30T09:00:00.123Z)".
std::string describe_change(const WorkerChange& change, const WorkerHome& home,
                            std::chrono::system_clock::time_point now = std::chrono::system_clock::now());

/// All of them, by rank; none where the experts are in one process. Counts are since the start.
struct WorkerReport {
  std::vector<WorkerSight> workers;
  std::array<int64_t, kNumWorkerStates> changes{};  // by the state that was entered, the first one included
  CoverCount covered;
  AnswerCount answers;
  ExpertCost expert_cost;  // by which work is given out
  int64_t kept_bytes = 0;  // of experts that the coordinator holds now, since nobody else answers for them

  /// Those in a state.
  int64_t count(WorkerState state) const;
  /// Those that are lost or in doubt, while requests are served.
  std::vector<WorkerSight> missing() const;
};

/// Written by the thread that dispatches, read by any.
class WorkerRecord {
 public:
  /// Returns how the worker stood until now.
  WorkerState note(const WorkerChange& change);
  /// Notes where a worker runs that was there from the start.
  void set_home(Rank rank, WorkerHome home);
  /// Returns where the worker runs, or the last one with its rank did.
  WorkerHome home(Rank rank) const;
  /// After a step: what has been counted. Allocates nothing once every worker is known.
  void take(const WorkerSeats& seats, const CoverCount& covered, const AnswerCount& answers, const ExpertCost& expert_cost,
            int64_t kept_bytes);
  WorkerReport report() const;

 private:
  struct Worker {
    WorkerSight sight;
    double seconds_per_cost = 0;  // WorkerPace
  };
  Worker& at(Rank rank);

  mutable std::mutex mutex_;
  std::vector<Worker> workers_;  // by rank
  WorkerReport counts_;          // without workers
};

}  // namespace ferry
