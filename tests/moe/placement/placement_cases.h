#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "moe/placement/placement_types.h"
#include "moe/placement/spread.h"

// What the tests of placements share: draws, and what every placement must keep to.

namespace ferry {

inline constexpr Redundancy kTwice{.kind = Redundancy::Kind::kTwice};

/// Draws that are the same on every machine: the standard's distributions are not.
class Draws {
 public:
  explicit Draws(uint32_t seed) : random_(seed) {}
  /// 0 to n - 1.
  int32_t below(int64_t n) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(n)); }
  int32_t between(int64_t min, int64_t max) { return static_cast<int32_t>(min) + below(max - min + 1); }
  double unit() { return random_() / 4294967296.0; }

  /// Costs like those of a popularity that falls with the rank, in random order; a few are 0.
  std::vector<double> costs(int64_t num_experts) {
    const double slope = 1.5 * unit();
    std::vector<double> cost;
    for (int64_t e = 0; e < num_experts; ++e) {
      cost.push_back(below(10) == 0 ? 0 : std::pow(1.0 + below(num_experts), -slope));
    }
    return cost;
  }

  /// Workers with room for `num_slots` or a little more in all; some have much room and some little, or none.
  std::vector<WorkerCapacity> workers(int64_t num_workers, int64_t num_slots) {
    std::vector<WorkerCapacity> list;
    int64_t room = 0;
    for (int64_t w = 0; w < num_workers; ++w) {
      list.push_back({.slots = below(2 * num_slots / num_workers + 2), .speed = below(3) == 0 ? 0.5 + unit() : 1.0});
      room += list.back().slots;
    }
    while (room++ < num_slots) ++list[static_cast<std::size_t>(below(num_workers))].slots;
    return list;
  }

 private:
  std::mt19937 random_;
};

/// Every expert at least once, no two copies on one worker, no worker with more than its slots.
inline void expect_sound(const LayerPlacement& placement, int64_t num_experts, const std::vector<WorkerCapacity>& workers) {
  ASSERT_EQ(placement.size(), workers.size());
  std::vector<int> copies(static_cast<std::size_t>(num_experts), 0);
  for (std::size_t w = 0; w < placement.size(); ++w) {
    EXPECT_LE(static_cast<int64_t>(placement[w].size()), workers[w].slots) << "worker " << w;
    std::vector<LogicalExpertId> experts = placement[w];
    std::sort(experts.begin(), experts.end());
    EXPECT_EQ(std::adjacent_find(experts.begin(), experts.end()), experts.end()) << "two copies on worker " << w;
    for (const LogicalExpertId expert : experts) {
      ASSERT_TRUE(expert.value >= 0 && expert.value < num_experts) << expert.value;
      ++copies[static_cast<std::size_t>(expert.value)];
    }
  }
  EXPECT_EQ(std::count(copies.begin(), copies.end(), 0), 0);
}

inline std::vector<WorkerCapacity> equal_workers(int64_t num_workers, int32_t slots) {
  return std::vector<WorkerCapacity>(static_cast<std::size_t>(num_workers), {.slots = slots});
}

inline int64_t num_placed(const LayerPlacement& placement) {
  int64_t count = 0;
  for (const auto& experts : placement) count += static_cast<int64_t>(experts.size());
  return count;
}

}  // namespace ferry
