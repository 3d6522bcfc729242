#include "runtime/worker_record.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>

namespace ferry {
namespace {

/// "2026-11-30T09:00:00.123Z".
std::string utc_text(std::chrono::system_clock::time_point time) {
  const auto since = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch());
  const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(since).count();
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const std::size_t end = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data() + end, text.size() - end, ".%03dZ", static_cast<int>(since.count() % 1000));
  return text.data();
}

}  // namespace

std::string describe_change(const WorkerChange& change, const WorkerHome& home, std::chrono::system_clock::time_point now) {
  std::string place;
  if (!home.host.empty()) place += "host " + home.host;
  if (!home.address.empty()) place += (place.empty() ? "" : ", ") + home.address;
  if (!place.empty()) place += "; ";
  return "rank " + std::to_string(change.rank.value) + " is " + worker_state_name(change.to) + ": " + one_line(change.reason) +
         " (" + place + utc_text(now) + ")";
}

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
  sight.is_lost = change.is_lost;
  if (change.to == WorkerState::kJoining) {  // another one than was there before
    sight.home = change.home;
    sight.rows = 0;
  }
  sight.changed_s = std::chrono::duration<double>(now).count();
  ++counts_.changes[static_cast<std::size_t>(change.to)];
  return before;
}

void WorkerRecord::set_home(Rank rank, WorkerHome home) {
  const std::scoped_lock lock(mutex_);
  at(rank).sight.home = std::move(home);
}

WorkerHome WorkerRecord::home(Rank rank) const {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(workers_, rank.value, [](const Worker& worker) { return worker.sight.rank; });
  return found == workers_.end() ? WorkerHome{} : found->sight.home;
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
