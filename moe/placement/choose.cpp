#include "moe/placement/choose.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

std::size_t lowest_worker(uint64_t workers) { return static_cast<std::size_t>(std::countr_zero(workers)); }

}  // namespace

ExpertChooser::ExpertChooser(int64_t num_experts, std::span<const double> speeds, const ExpertCost& cost) : cost_(cost) {
  if (speeds.empty() || static_cast<int64_t>(speeds.size()) > kMaxWorkers) {
    throw_invalid("choose: " + std::to_string(speeds.size()) + " workers; allowed: 1 to " + std::to_string(kMaxWorkers));
  }
  for (std::size_t w = 0; w < speeds.size(); ++w) {
    if (!std::isfinite(speeds[w]) || speeds[w] <= 0) {
      throw_invalid("choose: worker " + std::to_string(w) + " has speed " + std::to_string(speeds[w]) + "; allowed: above 0");
    }
    time_per_work_.push_back(1 / speeds[w]);
  }
  if (!std::isfinite(cost.fixed) || !std::isfinite(cost.per_row) || cost.fixed < 0 || cost.per_row < 0) {
    throw_invalid("choose: an expert's cost of " + std::to_string(cost.fixed) + " and " + std::to_string(cost.per_row) +
                  " a row; allowed: 0 or more");
  }
  choice_.worker.resize(static_cast<std::size_t>(num_experts));
  choice_.load.resize(speeds.size());
  first_load_.resize(speeds.size());
  touched_.reserve(choice_.worker.size());
  unsorted_.reserve(choice_.worker.size());
  movable_.reserve(choice_.worker.size());
  chain_ends_.reserve(choice_.load.size());
}

/// By falling rows, ties to the lower id: a radix sort of as many bytes as the largest number has.
void ExpertChooser::sort_touched(std::span<const int32_t> rows) {
  touched_.clear();
  int32_t most = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    if (rows[e] == 0) continue;
    touched_.push_back(static_cast<int32_t>(e));
    most = std::max(most, rows[e]);
  }
  unsorted_.resize(touched_.size());
  for (int shift = 0; shift < 32 && (most >> shift) != 0; shift += 8) {
    std::swap(touched_, unsorted_);
    const auto digit = [&](int32_t e) { return static_cast<std::size_t>(rows[static_cast<std::size_t>(e)] >> shift) & 0xffU; };
    std::array<int32_t, 256> place{};
    for (const int32_t e : unsorted_) ++place[digit(e)];
    int32_t before = 0;
    for (std::size_t d = place.size(); d-- > 0;) before += std::exchange(place[d], before);
    for (const int32_t e : unsorted_) touched_[static_cast<std::size_t>(place[digit(e)]++)] = e;
  }
}

const ExpertChoice& ExpertChooser::choose(std::span<const int32_t> rows, std::span<const uint64_t> holders, uint64_t live) {
  FERRY_CHECK_EQ(rows.size(), choice_.worker.size());
  FERRY_CHECK_EQ(holders.size(), choice_.worker.size());
  if (choice_.load.size() < 64) live &= (uint64_t{1} << choice_.load.size()) - 1;
  sort_touched(rows);
  std::fill(choice_.worker.begin(), choice_.worker.end(), ExpertChoice::kUntouched);
  std::fill(choice_.load.begin(), choice_.load.end(), 0.0);
  choice_.num_without_holder = 0;
  movable_.clear();
  for (const int32_t expert : touched_) {
    const auto e = static_cast<std::size_t>(expert);
    const uint64_t alive = holders[e] & live;
    const double cost = cost_.of(rows[e]);
    if (alive == 0) {
      choice_.worker[e] = ExpertChoice::kNoHolder;
      ++choice_.num_without_holder;
    } else if (std::has_single_bit(alive)) {
      choice_.worker[e] = static_cast<int32_t>(lowest_worker(alive));
      choice_.load[lowest_worker(alive)] += cost;
    } else {
      movable_.push_back({alive, cost, expert});
    }
  }
  give_out_movable();
  const double near_enough = kNearEnough * least_time(live);
  for (int i = 0; i < kMaxImprovements; ++i) {
    const std::size_t from = fullest();
    if (time_of(from, choice_.load[from]) <= near_enough || (!move_off(from) && !pass_on_from(from))) break;
  }
  return choice_;
}

/// To the least full holder each, or to the lowest one each if that is better.
void ExpertChooser::give_out_movable() {
  std::copy(choice_.load.begin(), choice_.load.end(), first_load_.begin());
  for (const Movable& item : movable_) {
    first_load_[lowest_worker(item.holders)] += item.cost;
    std::size_t best = lowest_worker(item.holders);
    double best_time = time_of(best, choice_.load[best] + item.cost);
    for (uint64_t rest = item.holders & (item.holders - 1); rest != 0; rest &= rest - 1) {
      const std::size_t w = lowest_worker(rest);
      const double time = time_of(w, choice_.load[w] + item.cost);
      if (time < best_time) {
        best = w;
        best_time = time;
      }
    }
    choice_.load[best] += item.cost;
    choice_.worker[static_cast<std::size_t>(item.expert)] = static_cast<int32_t>(best);
  }
  if (most_time(first_load_) >= most_time(choice_.load)) return;
  std::copy(first_load_.begin(), first_load_.end(), choice_.load.begin());
  for (const Movable& item : movable_) {
    choice_.worker[static_cast<std::size_t>(item.expert)] = static_cast<int32_t>(lowest_worker(item.holders));
  }
}

double ExpertChooser::most_time(std::span<const double> load) const {
  double most = 0;
  for (std::size_t w = 0; w < load.size(); ++w) most = std::max(most, time_of(w, load[w]));
  return most;
}

/// What the fullest worker would take if all that is to be done could be dealt evenly.
double ExpertChooser::least_time(uint64_t live) const {
  double load = 0, speed = 0;
  for (std::size_t w = 0; w < choice_.load.size(); ++w) {
    if ((live >> w & 1) == 0) continue;
    load += choice_.load[w];
    speed += 1 / time_per_work_[w];
  }
  return speed > 0 ? load / speed : 0;
}

std::size_t ExpertChooser::fullest() const {
  std::size_t most = 0;
  for (std::size_t w = 1; w < choice_.load.size(); ++w) {
    if (time_of(w, choice_.load[w]) > time_of(most, choice_.load[most])) most = w;
  }
  return most;
}

void ExpertChooser::move(const Movable& item, std::size_t to) {
  int32_t& worker = choice_.worker[static_cast<std::size_t>(item.expert)];
  choice_.load[static_cast<std::size_t>(worker)] -= item.cost;
  choice_.load[to] += item.cost;
  worker = static_cast<int32_t>(to);
}

/// Moves the expert off `from`, the fullest, whose move leaves the less full pair of both; false if none makes it less full.
bool ExpertChooser::move_off(std::size_t from) {
  double best_time = time_of(from, choice_.load[from]);
  const Movable* best = nullptr;
  std::size_t to = 0;
  for (const Movable& item : movable_) {
    if (choice_.worker[static_cast<std::size_t>(item.expert)] != static_cast<int32_t>(from)) continue;
    const double left = time_of(from, choice_.load[from] - item.cost);
    if (left >= best_time) continue;
    for (uint64_t rest = item.holders & ~(uint64_t{1} << from); rest != 0; rest &= rest - 1) {
      const std::size_t w = lowest_worker(rest);
      const double time = std::max(left, time_of(w, choice_.load[w] + item.cost));
      if (time >= best_time) continue;
      best_time = time;
      best = &item;
      to = w;
    }
  }
  if (best == nullptr) return false;
  move(*best, to);
  return true;
}

/// Looks, the fewest moves first, for a chain that ends at a worker with room and leaves everyone in it less full than `from`,
/// the fullest, is now; false if there is none (an augmenting path, as of a flow).
bool ExpertChooser::pass_on_from(std::size_t from) {
  const double limit = time_of(from, choice_.load[from]);
  chain_ends_.assign(1, {from, nullptr, 0});
  reached_ = uint64_t{1} << from;
  for (std::size_t end = 0; end < chain_ends_.size(); ++end) {
    if (extend(end, limit)) return true;
  }
  return false;
}

/// Adds the workers that the last one of a chain can pass an expert on to; carries the chain out where one of them has room.
bool ExpertChooser::extend(std::size_t end, double limit) {
  const ChainEnd here = chain_ends_[end];
  const double load = choice_.load[here.worker] + (here.item == nullptr ? 0 : here.item->cost);
  for (const Movable& item : movable_) {
    if (choice_.worker[static_cast<std::size_t>(item.expert)] != static_cast<int32_t>(here.worker)) continue;
    if (time_of(here.worker, load - item.cost) >= limit) continue;
    for (uint64_t rest = item.holders & ~reached_; rest != 0; rest &= rest - 1) {
      const std::size_t w = lowest_worker(rest);
      if (time_of(w, choice_.load[w] + item.cost) < limit) {
        pass_along(item, w, end);
        return true;
      }
      reached_ |= uint64_t{1} << w;
      chain_ends_.push_back({w, &item, end});
    }
  }
  return false;
}

/// `last` goes to `to` from the worker at `end`, and to each worker before it in the chain what was to be passed on to it.
void ExpertChooser::pass_along(const Movable& last, std::size_t to, std::size_t end) {
  move(last, to);
  for (; chain_ends_[end].item != nullptr; end = chain_ends_[end].from) move(*chain_ends_[end].item, chain_ends_[end].worker);
}

}  // namespace ferry
