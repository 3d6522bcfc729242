#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/link.h"
#include "moe/remote/worker_pace.h"
#include "runtime/base/error.h"
#include "runtime/base/worker_home.h"
#include "runtime/base/worker_state.h"

namespace ferry {

/// A worker came to stand otherwise.
struct WorkerChange {
  Rank rank;
  WorkerState from = WorkerState::kVacant, to = WorkerState::kVacant;
  std::string reason;
  bool is_lost = false;  // its link has ended, and it had not been let go
  WorkerHome home{};     // of one that joins
};
using OnWorkerChange = std::function<void(const WorkerChange&)>;

/// The workers of one dispatcher, by their index in its placement. Used by the thread that dispatches.
class WorkerSeats {
 public:
  struct Seat {
    Rank rank;
    Link* link = nullptr;  // outlives its time in the seat
    WorkerState state = WorkerState::kVacant;
    std::optional<Error> error;  // of one that is masked: how it was lost
    uint64_t num_requests = 0;   // sent so far: the sequence of the next one
    int num_late = 0;            // answers that it owes and nobody waits for any more
    int64_t num_rows = 0;        // that it has answered
    WorkerPace pace;
  };

  /// `on_change` may be empty; it is called on the thread that dispatches.
  explicit WorkerSeats(OnWorkerChange on_change) : on_change_(std::move(on_change)) {}

  /// Who sits where from now on: [num_workers], null for nobody. Who stays keeps state and pace.
  void assign(std::span<const Rank> ranks, const std::vector<Link*>& links);

  int32_t size() const { return static_cast<int32_t>(seats_.size()); }
  Seat& operator[](int32_t worker) { return seats_[static_cast<std::size_t>(worker)]; }
  const Seat& operator[](int32_t worker) const { return seats_[static_cast<std::size_t>(worker)]; }

  /// Those that get rows.
  uint64_t healthy() const { return mask_of(WorkerState::kHealthy) | mask_of(WorkerState::kLeaving); }
  static bool is_healthy(const Seat& seat) {
    return seat.state == WorkerState::kHealthy || seat.state == WorkerState::kLeaving;
  }
  uint64_t suspect() const { return mask_of(WorkerState::kSuspect); }
  /// Those that are there, healthy or not.
  static bool is_there(const Seat& seat) { return is_healthy(seat) || seat.state == WorkerState::kSuspect; }
  /// Whether somebody was lost, or is in doubt and may not hear a goodbye.
  bool misses_some() const { return lost_some_ || suspect() != 0; }

  /// Its link is failed, and nothing more comes from it.
  void lose(int32_t worker, const Error& error);
  void suspect(int32_t worker, const std::string& reason) { change(worker, WorkerState::kSuspect, reason); }
  /// It has answered all it owed.
  void clear(int32_t worker) { change(worker, WorkerState::kHealthy, "answers again"); }
  /// It wants to go.
  void let_leave(int32_t worker) { change(worker, WorkerState::kLeaving, "asks to leave"); }
  /// It is left or lost, and not needed any more: its link may go.
  void retire(int32_t worker, const std::string& reason);
  /// Where nobody healthy holds `expert`: one of `holders` that is suspected. Throws what the first of the lost ones failed
  /// with.
  int32_t require_holder(uint64_t holders, int32_t expert) const;
  /// Loses those whose link has ended meanwhile.
  void look_at_links();

  /// [num_workers] as learnt (relative_speeds).
  std::vector<double> speeds() const;

 private:
  uint64_t mask_of(WorkerState state) const;
  void change(int32_t worker, WorkerState to, const std::string& reason);

  OnWorkerChange on_change_;
  std::vector<Seat> seats_;
  bool lost_some_ = false;
};

}  // namespace ferry
