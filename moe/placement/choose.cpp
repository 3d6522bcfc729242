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
  for (int i = 0; i < kMaxImprovements && improve(); ++i) {
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

/// Moves the expert off the fullest worker whose move leaves the less full pair of both; false if none makes it less full.
bool ExpertChooser::improve() {
  std::size_t from = 0;
  for (std::size_t w = 1; w < choice_.load.size(); ++w) {
    if (time_of(w, choice_.load[w]) > time_of(from, choice_.load[from])) from = w;
  }
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
  choice_.load[from] -= best->cost;
  choice_.load[to] += best->cost;
  choice_.worker[static_cast<std::size_t>(best->expert)] = static_cast<int32_t>(to);
  return true;
}

}  // namespace ferry
