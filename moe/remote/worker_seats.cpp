#include "moe/remote/worker_seats.h"

#include <utility>

namespace ferry {

void WorkerSeats::assign(std::span<const Rank> ranks, const std::vector<Link*>& links) {
  seats_.resize(links.size());
  for (std::size_t w = 0; w < links.size(); ++w) {
    Seat& seat = seats_[w];
    seat.rank = ranks[w];
    if (seat.link == links[w]) continue;
    seat = Seat{.rank = ranks[w], .link = links[w]};
    if (links[w] != nullptr) change(static_cast<int32_t>(w), WorkerState::kHealthy, "");
  }
}

void WorkerSeats::lose(int32_t worker, const Error& error) {
  Seat& seat = (*this)[worker];
  if (!is_there(seat)) return;
  seat.error = error;
  lost_some_ = true;
  if (!seat.link->failure()) seat.link->fail(error.what());
  change(worker, WorkerState::kMasked, error.what());
}

void WorkerSeats::retire(int32_t worker, const std::string& reason) {
  Seat& seat = (*this)[worker];
  seat.link = nullptr;
  seat.num_late = 0;
  change(worker, WorkerState::kGone, reason);
}

void WorkerSeats::look_at_links() {
  for (int32_t w = 0; w < size(); ++w) {
    const Seat& seat = (*this)[w];
    if (!is_there(seat)) continue;
    if (const std::optional<Error> error = seat.link->failure()) lose(w, *error);
  }
}

int32_t WorkerSeats::require_holder(uint64_t holders, int32_t expert) const {
  const auto holds = [&](int32_t w) { return (holders >> w & 1) != 0; };
  for (int32_t w = 0; w < size(); ++w) {
    if (holds(w) && (*this)[w].state == WorkerState::kSuspect) return w;
  }
  for (int32_t w = 0; w < size(); ++w) {
    if (holds(w) && (*this)[w].error) throw Error(*(*this)[w].error);
  }
  throw Error(ErrorCode::kUnavailable, "no worker holds expert " + std::to_string(expert));
}

std::vector<double> WorkerSeats::speeds() const {
  std::vector<double> seconds;
  for (const Seat& seat : seats_) seconds.push_back(seat.pace.seconds_per_cost());
  return relative_speeds(seconds);
}

uint64_t WorkerSeats::mask_of(WorkerState state) const {
  uint64_t mask = 0;
  for (std::size_t w = 0; w < seats_.size(); ++w) mask |= uint64_t{seats_[w].state == state ? 1U : 0U} << w;
  return mask;
}

void WorkerSeats::change(int32_t worker, WorkerState to, const std::string& reason) {
  Seat& seat = (*this)[worker];
  const WorkerState from = std::exchange(seat.state, to);
  if (from == to || !on_change_) return;
  on_change_({.rank = seat.rank, .from = from, .to = to, .reason = reason, .is_lost = seat.error.has_value()});
}

}  // namespace ferry
