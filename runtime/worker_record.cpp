#include "runtime/worker_record.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ferry {

int64_t WorkerReport::count(WorkerState state) const {
  return std::count_if(workers.begin(), workers.end(), [state](const WorkerSight& worker) { return worker.state == state; });
}

std::vector<WorkerSight> WorkerReport::missing() const {
  std::vector<WorkerSight> found;
  for (const WorkerSight& worker : workers) {
    if (worker.state == WorkerState::kSuspect || worker.state == WorkerState::kMasked) found.push_back(worker);
  }
  return found;
}

WorkerRecord::Worker& WorkerRecord::at(Rank rank) {
  const auto found = std::lower_bound(workers_.begin(), workers_.end(), rank.value,
                                      [](const Worker& worker, int32_t wanted) { return worker.sight.rank < wanted; });
  if (found != workers_.end() && found->sight.rank == rank.value) return *found;
  return *workers_.insert(found, Worker{.sight = {.rank = rank.value}});
}

WorkerState WorkerRecord::note(const WorkerChange& change) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::scoped_lock lock(mutex_);
  WorkerSight& sight = at(change.rank).sight;
  const WorkerState before = std::exchange(sight.state, change.to);
  sight.reason = change.reason;
  sight.changed_s = std::chrono::duration<double>(now).count();
  ++counts_.changes[static_cast<std::size_t>(change.to)];
  return before;
}

void WorkerRecord::take(const WorkerSeats& seats, const CoverCount& covered, const AnswerCount& answers,
                        const ExpertCost& expert_cost, int64_t kept_bytes) {
  const std::scoped_lock lock(mutex_);
  counts_.expert_cost = expert_cost;
  counts_.covered = covered;
  counts_.answers = answers;
  counts_.kept_bytes = kept_bytes;
  for (int32_t w = 0; w < seats.size(); ++w) {
    const WorkerSeats::Seat& seat = seats[w];
    if (seat.link == nullptr) continue;
    Worker& worker = at(seat.rank);
    worker.sight.rows = seat.num_rows;
    worker.seconds_per_cost = seat.pace.seconds_per_cost();
  }
}

WorkerReport WorkerRecord::report() const {
  const std::scoped_lock lock(mutex_);
  WorkerReport report = counts_;
  std::vector<double> seconds;
  for (const Worker& worker : workers_) {
    report.workers.push_back(worker.sight);
    seconds.push_back(worker.seconds_per_cost);
  }
  const std::vector<double> speeds = relative_speeds(seconds);
  for (std::size_t w = 0; w < speeds.size(); ++w) report.workers[w].speed = speeds[w];
  return report;
}

}  // namespace ferry
