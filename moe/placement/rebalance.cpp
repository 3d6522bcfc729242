#include "moe/placement/rebalance.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr double kLeastStep = 0.01;  // share of the mean that a move has to win
constexpr int kMaxLayerSteps = 100;  // moves or exchanges of a layer

void check_current(const LayerPlacement& current, std::size_t num_workers, std::size_t num_experts) {
  if (current.size() != num_workers) {
    throw_invalid("rebalance: a placement on " + std::to_string(current.size()) + " workers for " +
                  std::to_string(num_workers) + "; allowed: the same");
  }
  for (std::size_t w = 0; w < current.size(); ++w) {
    std::vector<bool> seen(num_experts, false);
    for (const LogicalExpertId expert : current[w]) {
      const bool known = expert.value >= 0 && expert.value < static_cast<int64_t>(num_experts);
      if (known && !seen[static_cast<std::size_t>(expert.value)]) {
        seen[static_cast<std::size_t>(expert.value)] = true;
        continue;
      }
      throw_invalid("rebalance: expert " + std::to_string(expert.value) + " on worker " + std::to_string(w) +
                    "; allowed: each of 0 to " + std::to_string(static_cast<int64_t>(num_experts) - 1) + " once");
    }
  }
}

/// A placement that is being changed, and how far it is from where it started.
class MovingLayer {
 public:
  MovingLayer(std::span<const double> cost, std::span<const WorkerCapacity> workers, const LayerPlacement& current)
      : cost_(cost),
        workers_(workers),
        holds_(workers.size(), std::vector<bool>(cost.size(), false)),
        held_before_(holds_),
        num_held_(workers.size(), 0),
        copies_(cost.size(), 0) {
    for (std::size_t w = 0; w < workers.size(); ++w) {
      if (workers[w].slots == 0) continue;
      for (const LogicalExpertId expert : current[w]) {
        held_before_[w][static_cast<std::size_t>(expert.value)] = true;
        put(static_cast<std::size_t>(expert.value), w);
      }
    }
  }

  std::span<const int32_t> copies() const { return copies_; }
  int64_t num_loads() const { return num_loads_; }

  /// Workers that hold more than they have slots for lose what costs least.
  void drop_beyond_slots() {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      while (num_held_[w] > workers_[w].slots) {
        std::size_t least = cost_.size();
        for (std::size_t e = 0; e < cost_.size(); ++e) {
          if (holds_[w][e] && (least == cost_.size() || cost_[e] < cost_[least])) least = e;
        }
        take(least, w);
      }
    }
  }

  /// From now on each expert's cost is shared by as many copies as it will have.
  void set_shares(std::span<const int32_t> copies) {
    share_.resize(cost_.size());
    load_.assign(workers_.size(), 0.0);
    for (std::size_t e = 0; e < cost_.size(); ++e) share_[e] = cost_[e] / copies[e];
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      for (std::size_t e = 0; e < cost_.size(); ++e) load_[w] += holds_[w][e] ? share_[e] : 0;
    }
  }

  /// Takes a copy from the fullest of the workers that hold e.
  void drop_copy(std::size_t e) {
    std::size_t fullest = workers_.size();
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (holds_[w][e] && (fullest == workers_.size() || time(w) >= time(fullest))) fullest = w;
    }
    FERRY_CHECK_LT(fullest, workers_.size());
    take(e, fullest);
    load_[fullest] -= share_[e];
  }

  /// Gives e one more copy, on the worker that has done first, or where an expert of a full worker can make room. False if
  /// neither will do.
  bool add_copy(std::size_t e) {
    std::size_t best = workers_.size();
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (has_room(w) && !holds_[w][e] && (best == workers_.size() || time(w, share_[e]) < time(best, share_[e]))) best = w;
    }
    if (best == workers_.size()) best = make_room_for(e);
    if (best == workers_.size()) return false;
    put(e, best);
    load_[best] += share_[e];
    return true;
  }

  /// Takes work off the fullest worker, by the move or exchange that leaves the less full pair, with at most `max_loads` more
  /// loads; false if none wins enough.
  bool improve(int64_t max_loads) {
    double work = 0, speed = 0;
    std::size_t from = workers_.size();
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w].slots == 0) continue;
      work += load_[w];
      speed += workers_[w].speed;
      if (from == workers_.size() || time(w) > time(from)) from = w;
    }
    if (from == workers_.size()) return false;
    Step best{.time = time(from) - kLeastStep * work / speed};
    for (std::size_t to = 0; to < workers_.size(); ++to) {
      if (to == from || workers_[to].slots == 0) continue;
      const std::vector<std::size_t> given = held_by_first_only(from, to), returned = held_by_first_only(to, from);
      for (const std::size_t e : given) {
        if (has_room(to)) consider(from, to, e, kNobody, max_loads, best);
        for (const std::size_t back : returned) consider(from, to, e, back, max_loads, best);
      }
    }
    if (best.to == kNobody) return false;
    move(best.expert, from, best.to);
    if (best.back != kNobody) move(best.back, best.to, from);
    return true;
  }

  void become(const LayerPlacement& other) {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      for (std::size_t e = 0; e < cost_.size(); ++e) {
        if (holds_[w][e]) take(e, w);
      }
      for (const LogicalExpertId expert : other[w]) put(static_cast<std::size_t>(expert.value), w);
    }
  }

  /// In the slots they had, newcomers in those that came free.
  LayerPlacement placement(const LayerPlacement& current) const {
    LayerPlacement placement(workers_.size());
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      std::vector<LogicalExpertId> newcomers;
      for (std::size_t e = 0; e < cost_.size(); ++e) {
        if (holds_[w][e] && !held_before_[w][e]) newcomers.push_back({static_cast<int32_t>(e)});
      }
      auto next = newcomers.begin();
      for (const LogicalExpertId expert : current[w]) {
        if (holds_[w][static_cast<std::size_t>(expert.value)]) {
          placement[w].push_back(expert);
        } else if (next != newcomers.end()) {
          placement[w].push_back(*next++);
        }
      }
      placement[w].insert(placement[w].end(), next, newcomers.end());
    }
    return placement;
  }

 private:
  static constexpr std::size_t kNobody = SIZE_MAX;

  struct Step {
    double time = 0;  // of the fuller of both workers after it
    int64_t loads = 0;
    std::size_t to = kNobody, expert = kNobody, back = kNobody;
  };

  double time(std::size_t w, double more = 0) const { return (load_[w] + more) / workers_[w].speed; }
  bool has_room(std::size_t w) const { return num_held_[w] < workers_[w].slots; }

  std::vector<std::size_t> held_by_first_only(std::size_t first, std::size_t second) const {
    std::vector<std::size_t> experts;
    for (std::size_t e = 0; e < cost_.size(); ++e) {
      if (holds_[first][e] && !holds_[second][e]) experts.push_back(e);
    }
    return experts;
  }

  void put(std::size_t e, std::size_t w) {
    holds_[w][e] = true;
    ++num_held_[w];
    ++copies_[e];
    num_loads_ += held_before_[w][e] ? 0 : 1;
  }
  void take(std::size_t e, std::size_t w) {
    holds_[w][e] = false;
    --num_held_[w];
    --copies_[e];
    num_loads_ -= held_before_[w][e] ? 0 : 1;
  }
  void move(std::size_t e, std::size_t from, std::size_t to) {
    take(e, from);
    put(e, to);
    load_[from] -= share_[e];
    load_[to] += share_[e];
  }
  /// Loads that a move of e from one worker to another adds; less than 0 where it undoes one.
  int64_t loads_of(std::size_t e, std::size_t from, std::size_t to) const {
    return (held_before_[to][e] ? 0 : 1) - (held_before_[from][e] ? 0 : 1);
  }

  void consider(std::size_t from, std::size_t to, std::size_t e, std::size_t back, int64_t max_loads, Step& best) const {
    const double moved = share_[e] - (back == kNobody ? 0 : share_[back]);
    const double after = std::max(time(from, -moved), time(to, moved));
    if (after > best.time) return;
    const int64_t loads = loads_of(e, from, to) + (back == kNobody ? 0 : loads_of(back, to, from));
    if (loads > max_loads || (after == best.time && (best.to == kNobody || loads >= best.loads))) return;
    best = {.time = after, .loads = loads, .to = to, .expert = e, .back = back};
  }

  /// All workers with room hold e: moves an expert of a full one, which does not hold e, to one of them. The worker with room
  /// now, or workers_.size().
  std::size_t make_room_for(std::size_t e) {
    std::size_t from = workers_.size(), to = workers_.size(), moved = cost_.size();
    double best = 0;
    for (std::size_t full = 0; full < workers_.size(); ++full) {
      if (holds_[full][e] || workers_[full].slots == 0) continue;
      for (std::size_t open = 0; open < workers_.size(); ++open) {
        if (!has_room(open)) continue;
        for (std::size_t other = 0; other < cost_.size(); ++other) {
          if (!holds_[full][other] || holds_[open][other]) continue;
          const double after = std::max(time(full, share_[e] - share_[other]), time(open, share_[other]));
          if (from != workers_.size() && after >= best) continue;
          best = after;
          std::tie(from, to, moved) = std::tie(full, open, other);
        }
      }
    }
    if (from != workers_.size()) move(moved, from, to);
    return from;
  }

  std::span<const double> cost_;
  std::span<const WorkerCapacity> workers_;
  std::vector<std::vector<bool>> holds_;        // [num_workers][num_experts]
  std::vector<std::vector<bool>> held_before_;  // [num_workers][num_experts] by workers that are there
  std::vector<int32_t> num_held_;               // [num_workers]
  std::vector<int32_t> copies_;                 // [num_experts]
  std::vector<double> share_;                   // [num_experts] cost of one copy
  std::vector<double> load_;                    // [num_workers]
  int64_t num_loads_ = 0;
};

/// Brings the copies to `wanted`: all that have none, then those worth most while loads last; as many surplus ones go as are
/// replaced. False if a copy finds no place.
bool change_copies(MovingLayer& layer, std::span<const double> cost, std::span<const int32_t> wanted, int64_t max_loads) {
  std::vector<int32_t> held(layer.copies().begin(), layer.copies().end());
  struct Copy {
    double worth;
    std::size_t expert;
  };
  std::vector<Copy> orphans, missing, surplus;
  for (std::size_t e = 0; e < wanted.size(); ++e) {
    for (int32_t k = held[e] + 1; k <= wanted[e]; ++k) (k == 1 ? orphans : missing).push_back({cost[e] / k, e});
    for (int32_t k = wanted[e] + 1; k <= held[e]; ++k) surplus.push_back({cost[e] / k, e});
  }
  const auto worth_more = [](const Copy& a, const Copy& b) { return a.worth > b.worth; };
  std::stable_sort(orphans.begin(), orphans.end(), worth_more);
  std::stable_sort(missing.begin(), missing.end(), worth_more);
  std::stable_sort(surplus.begin(), surplus.end(), worth_more);
  const std::size_t num_allowed = std::min(
      missing.size(), static_cast<std::size_t>(std::max<int64_t>(0, max_loads - static_cast<int64_t>(orphans.size()))));
  const std::size_t num_kept = std::min(surplus.size(), missing.size() - num_allowed);
  for (std::size_t i = num_kept; i < surplus.size(); ++i) layer.drop_copy(surplus[i].expert);
  missing.resize(num_allowed);
  for (const auto& copies : {orphans, missing}) {
    for (const Copy& copy : copies) {
      if (!layer.add_copy(copy.expert)) return false;
    }
  }
  return true;
}

/// Whether a placement has to change: experts without a copy, fewer copies than wanted, slots that are not there.
bool must_change(std::span<const double> cost, std::span<const WorkerCapacity> workers, const Redundancy& redundancy,
                 const LayerPlacement& current) {
  for (std::size_t w = 0; w < workers.size(); ++w) {
    if (static_cast<int64_t>(current[w].size()) > workers[w].slots) return true;
  }
  const std::vector<int32_t> held = copies_in(current, static_cast<int64_t>(cost.size()));
  const std::vector<int32_t> wanted = count_copies(cost, workers, redundancy, held);
  return std::find(held.begin(), held.end(), 0) != held.end() ||
         std::accumulate(held.begin(), held.end(), int64_t{0}) < std::accumulate(wanted.begin(), wanted.end(), int64_t{0});
}

/// The loads of a layer without those on workers that are gone.
double live_cost(const LayerPlacement& placement, std::span<const double> cost, std::span<const WorkerCapacity> workers) {
  LayerPlacement live = placement;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    if (workers[w].slots == 0) live[w].clear();
  }
  return placement_cost(live, cost, workers);
}

/// Puts the experts of `fresh` that a worker holds already in the slots they have.
LayerPlacement in_old_slots(const LayerPlacement& fresh, std::span<const double> cost, std::span<const WorkerCapacity> workers,
                            const LayerPlacement& current) {
  MovingLayer layer(cost, workers, current);
  layer.become(fresh);
  return layer.placement(current);
}

}  // namespace

LayerPlacement spread_near(std::span<const double> cost, std::span<const WorkerCapacity> workers, const Redundancy& redundancy,
                           const LayerPlacement& current, int64_t max_loads) {
  check_current(current, workers.size(), cost.size());
  MovingLayer layer(cost, workers, current);
  layer.drop_beyond_slots();
  const std::vector<int32_t> wanted = count_copies(cost, workers, redundancy, layer.copies());
  layer.set_shares(wanted);
  if (!change_copies(layer, cost, wanted, max_loads)) {
    return in_old_slots(spread(cost, workers, redundancy), cost, workers, current);
  }
  for (int i = 0; i < kMaxLayerSteps && layer.improve(max_loads - layer.num_loads()); ++i) {
  }
  return layer.placement(current);
}

std::vector<LayerChange> rebalance(std::span<const std::vector<double>> cost, std::span<const LayerPlacement> current,
                                   std::span<const WorkerCapacity> workers, const Redundancy& redundancy,
                                   const RebalanceLimits& limits) {
  if (limits.expert_bytes < 1 || limits.budget_bytes < 0 || !(limits.min_gain >= 0)) {
    throw_invalid("rebalance: experts of " + std::to_string(limits.expert_bytes) + " bytes, a budget of " +
                  std::to_string(limits.budget_bytes) + " and a least gain of " + std::to_string(limits.min_gain) +
                  "; allowed: at least 1, 0 and 0");
  }
  FERRY_CHECK_EQ(cost.size(), current.size());
  int64_t loads_left = limits.budget_bytes / limits.expert_bytes;
  const auto change_of = [&](std::size_t l) {
    LayerChange change{.layer = static_cast<int64_t>(l),
                       .placement = spread_near(cost[l], workers, redundancy, current[l], loads_left),
                       .cost_before = live_cost(current[l], cost[l], workers)};
    change.cost_after = placement_cost(change.placement, cost[l], workers);
    change.num_loads = count_loads(current[l], change.placement);
    return change;
  };
  std::vector<LayerChange> changes, candidates;
  std::vector<bool> is_forced(cost.size(), false);
  for (std::size_t l = 0; l < cost.size(); ++l) {
    check_current(current[l], workers.size(), cost[l].size());
    is_forced[l] = must_change(cost[l], workers, redundancy, current[l]);
    if (!is_forced[l]) continue;
    LayerChange change = change_of(l);
    change.is_forced = true;
    if (change.placement == current[l]) continue;
    loads_left = std::max<int64_t>(0, loads_left - change.num_loads);
    changes.push_back(std::move(change));
  }
  const auto is_worth = [&](const LayerChange& change) {
    const double gain = change.cost_before - change.cost_after;
    return gain > 0 && gain >= limits.min_gain * change.cost_before;
  };
  for (std::size_t l = 0; l < cost.size(); ++l) {
    if (is_forced[l]) continue;
    LayerChange change = change_of(l);
    if (is_worth(change)) candidates.push_back(std::move(change));
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const LayerChange& a, const LayerChange& b) {
    return a.cost_before - a.cost_after > b.cost_before - b.cost_after;
  });
  for (LayerChange& change : candidates) {
    // What was planned with more loads than are left is planned once more.
    if (change.num_loads > loads_left) change = change_of(static_cast<std::size_t>(change.layer));
    if (change.num_loads > loads_left || !is_worth(change)) continue;
    loads_left -= change.num_loads;
    changes.push_back(std::move(change));
  }
  return changes;
}

int64_t count_loads(const LayerPlacement& from, const LayerPlacement& to) {
  int64_t loads = 0;
  for (std::size_t w = 0; w < to.size(); ++w) {
    for (const LogicalExpertId expert : to[w]) {
      loads += w >= from.size() || std::find(from[w].begin(), from[w].end(), expert) == from[w].end();
    }
  }
  return loads;
}

}  // namespace ferry
