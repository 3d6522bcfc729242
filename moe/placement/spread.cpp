#include "moe/placement/spread.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <tuple>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

/// How many experts need how many more places, each on another worker, and whether they fit.
class PlacesNeeded {
 public:
  void add(int32_t copies, int32_t experts) { experts_[static_cast<std::size_t>(copies)] += experts; }

  /// Gale and Ryser: they fit exactly if for every m the m experts with the most copies have no more than sum(min(room, m)).
  /// Both sides are concave in m, and the first is linear between the counts that occur, so those are enough.
  bool fit(std::span<const int32_t> rooms) const {
    int64_t experts = 0, copies = 0;
    for (std::size_t k = experts_.size() - 1; k >= 1; --k) {
      if (experts_[k] == 0) continue;
      experts += experts_[k];
      copies += static_cast<int64_t>(k) * experts_[k];
      int64_t places = 0;
      for (const int32_t room : rooms) places += std::min<int64_t>(room, experts);
      if (places < copies) return false;
    }
    return true;
  }

 private:
  std::array<int32_t, kMaxWorkers + 1> experts_{};  // [copies]
};

std::vector<int32_t> rooms_of(std::span<const WorkerCapacity> workers) {
  std::vector<int32_t> rooms;
  for (const WorkerCapacity& worker : workers) rooms.push_back(worker.slots);
  return rooms;
}

void check_spread_input(std::span<const double> cost, std::span<const WorkerCapacity> workers, const Redundancy& redundancy) {
  if (workers.empty() || static_cast<int64_t>(workers.size()) > kMaxWorkers) {
    throw_invalid("spread: " + std::to_string(workers.size()) + " workers; allowed: 1 to " + std::to_string(kMaxWorkers));
  }
  for (std::size_t w = 0; w < workers.size(); ++w) {
    if (workers[w].slots >= 0 && std::isfinite(workers[w].speed) && workers[w].speed > 0) continue;
    throw_invalid("spread: worker " + std::to_string(w) + " has " + std::to_string(workers[w].slots) + " slots and speed " +
                  std::to_string(workers[w].speed) + "; allowed: 0 slots or more, a speed above 0");
  }
  for (std::size_t e = 0; e < cost.size(); ++e) {
    if (std::isfinite(cost[e]) && cost[e] >= 0) continue;
    throw_invalid("spread: expert " + std::to_string(e) + " has cost " + std::to_string(cost[e]) + "; allowed: 0 or more");
  }
  if (redundancy.extra_slots < 0) {
    throw_invalid("spread: " + std::to_string(redundancy.extra_slots) + " extra slots; allowed: 0 or more");
  }
}

[[noreturn]] void refuse_room(std::size_t num_experts, int64_t num_copies, std::span<const WorkerCapacity> workers) {
  int64_t slots = 0, live = 0;
  for (const WorkerCapacity& worker : workers) {
    slots += worker.slots;
    live += worker.slots > 0;
  }
  throw_invalid("spread: " + std::to_string(num_copies) + " copies of " + std::to_string(num_experts) + " experts on " +
                std::to_string(live) + " workers with " + std::to_string(slots) +
                " slots in all; allowed: as many as have room with no two copies of one expert on the same worker");
}

/// Gives the extra slots away.
void add_extra_copies(std::span<const double> cost, std::span<const int32_t> rooms, int64_t extra_slots,
                      std::span<const int32_t> held, PlacesNeeded& needed, std::vector<int32_t>& copies) {
  const auto live = static_cast<int32_t>(std::count_if(rooms.begin(), rooms.end(), [](int32_t room) { return room > 0; }));
  std::vector<bool> is_full(cost.size(), false);  // no room for another copy, now and later
  const auto worth = [&](std::size_t e) {
    const double kept = !held.empty() && copies[e] < held[e] ? 1 + kKeptCopyBonus : 1;
    return kept * cost[e] / copies[e];
  };
  while (extra_slots > 0) {
    std::size_t best = cost.size();
    double best_worth = -1;
    for (std::size_t e = 0; e < cost.size(); ++e) {
      if (is_full[e] || copies[e] == live) continue;
      const double w = worth(e);
      if (w < best_worth || (w == best_worth && copies[e] >= copies[best])) continue;
      best = e;
      best_worth = w;
    }
    if (best == cost.size()) return;
    needed.add(copies[best], -1);
    needed.add(copies[best] + 1, 1);
    if (needed.fit(rooms)) {
      ++copies[best];
      --extra_slots;
    } else {
      needed.add(copies[best] + 1, -1);
      needed.add(copies[best], 1);
      is_full[best] = true;
    }
  }
}

/// Deals copies to workers, one expert after the other.
class Dealer {
 public:
  Dealer(std::span<const double> cost, std::span<const int32_t> copies, std::span<const WorkerCapacity> workers,
         Redundancy::Kind kind)
      : cost_(cost),
        copies_(copies),
        workers_(workers),
        kind_(kind),
        rooms_(rooms_of(workers)),
        load_(workers.size(), 0.0),
        shared_(workers.size() * workers.size(), 0),
        placement_(workers.size()) {
    for (const int32_t k : copies) needed_.add(k, 1);
  }

  LayerPlacement deal() {
    std::vector<std::size_t> order(cost_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return share(a) > share(b); });
    for (const std::size_t e : order) deal_expert(e);
    for (auto& experts : placement_) std::ranges::sort(experts, {}, &LogicalExpertId::value);
    return std::move(placement_);
  }

 private:
  double share(std::size_t e) const { return cost_[e] / copies_[e]; }

  void deal_expert(std::size_t e) {
    needed_.add(copies_[e], -1);
    std::vector<std::size_t> holders;
    while (static_cast<int32_t>(holders.size()) < copies_[e]) {
      const std::size_t w = next_holder(e, holders);
      for (const std::size_t other : holders) {
        ++shared_[w * workers_.size() + other];
        ++shared_[other * workers_.size() + w];
      }
      holders.push_back(w);
      load_[w] += share(e);
      --rooms_[w];
      placement_[w].push_back({static_cast<int32_t>(e)});
    }
  }

  /// The best worker for another copy of e that leaves room for the rest.
  std::size_t next_holder(std::size_t e, std::span<const std::size_t> holders) const {
    using Key = std::tuple<double, double, std::size_t, std::size_t>;
    std::vector<Key> candidates;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (rooms_[w] == 0 || std::find(holders.begin(), holders.end(), w) != holders.end()) continue;
      // With two copies of all, the second goes where the first one's worker has the fewest of its experts' other copies.
      const bool spreads = kind_ == Redundancy::Kind::kTwice && !holders.empty();
      const double shared = spreads ? static_cast<double>(shared_[w * workers_.size() + holders[0]]) / workers_[w].slots : 0;
      candidates.emplace_back(shared, (load_[w] + share(e)) / workers_[w].speed, placement_[w].size(), w);
    }
    std::sort(candidates.begin(), candidates.end());
    for (const Key& candidate : candidates) {
      if (leaves_room(e, holders, std::get<3>(candidate))) return std::get<3>(candidate);
    }
    FERRY_CHECK(false) << " no worker for a copy of expert " << e;
    return 0;
  }

  /// Whether, with a copy of e on `next`, its others and all later experts have places. Its others take the workers with the
  /// most room, which leaves the best chances for the rest.
  bool leaves_room(std::size_t e, std::span<const std::size_t> holders, std::size_t next) const {
    std::array<int32_t, kMaxWorkers> rooms;
    std::size_t open = 0;  // the first ones may take a further copy of e
    std::size_t taken = workers_.size();
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const bool holds = w == next || std::find(holders.begin(), holders.end(), w) != holders.end();
      rooms[holds ? --taken : open++] = rooms_[w] - (w == next ? 1 : 0);
    }
    const std::size_t others = static_cast<std::size_t>(copies_[e]) - holders.size() - 1;
    if (others > open) return false;
    std::nth_element(rooms.begin(), rooms.begin() + static_cast<std::ptrdiff_t>(others),
                     rooms.begin() + static_cast<std::ptrdiff_t>(open), std::greater<>());
    for (std::size_t i = 0; i < others; ++i) {
      if (rooms[i]-- == 0) return false;
    }
    return needed_.fit(std::span(rooms).first(workers_.size()));
  }

  std::span<const double> cost_;
  std::span<const int32_t> copies_;
  std::span<const WorkerCapacity> workers_;
  Redundancy::Kind kind_;
  PlacesNeeded needed_;          // of the experts that are not dealt yet
  std::vector<int32_t> rooms_;   // [num_workers] slots left
  std::vector<double> load_;     // [num_workers]
  std::vector<int32_t> shared_;  // [num_workers, num_workers] experts with copies on both
  LayerPlacement placement_;
};

}  // namespace

std::vector<int32_t> count_copies(std::span<const double> cost, std::span<const WorkerCapacity> workers,
                                  const Redundancy& redundancy, std::span<const int32_t> held) {
  check_spread_input(cost, workers, redundancy);
  const std::vector<int32_t> rooms = rooms_of(workers);
  const int32_t each = redundancy.kind == Redundancy::Kind::kTwice ? 2 : 1;
  std::vector<int32_t> copies(cost.size(), each);
  PlacesNeeded needed;
  needed.add(each, static_cast<int32_t>(cost.size()));
  const int64_t extra = redundancy.kind == Redundancy::Kind::kTwice ? 0 : redundancy.extra_slots;
  const int64_t num_copies = static_cast<int64_t>(cost.size()) * each + extra;
  if (!needed.fit(rooms) || num_copies > std::accumulate(rooms.begin(), rooms.end(), int64_t{0})) {
    refuse_room(cost.size(), num_copies, workers);
  }
  add_extra_copies(cost, rooms, extra, held, needed, copies);
  return copies;
}

LayerPlacement spread(std::span<const double> cost, std::span<const WorkerCapacity> workers, const Redundancy& redundancy) {
  const std::vector<int32_t> copies = count_copies(cost, workers, redundancy);
  return Dealer(cost, copies, workers, redundancy.kind).deal();
}

double placement_cost(const LayerPlacement& placement, std::span<const double> cost, std::span<const WorkerCapacity> workers) {
  const std::vector<int32_t> copies = copies_in(placement, static_cast<int64_t>(cost.size()));
  double most = 0;
  for (std::size_t w = 0; w < placement.size(); ++w) {
    double load = 0;
    for (const LogicalExpertId expert : placement[w]) {
      const auto e = static_cast<std::size_t>(expert.value);
      load += cost[e] / copies[e];
    }
    most = std::max(most, load / workers[w].speed);
  }
  return most;
}

std::vector<int32_t> copies_in(const LayerPlacement& placement, int64_t num_experts) {
  std::vector<int32_t> copies(static_cast<std::size_t>(num_experts), 0);
  for (const auto& experts : placement) {
    for (const LogicalExpertId expert : experts) ++copies[static_cast<std::size_t>(expert.value)];
  }
  return copies;
}

}  // namespace ferry
