#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "profiler/export/ascend_rank.h"

// What collectives add up to, as communication.json and analysis.db say it.

namespace ferry {

/// Times of one or more collectives, in ns.
struct AscendTimes {
  int64_t elapse_ns = 0, transit_ns = 0, wait_ns = 0, synchronization_ns = 0;

  void add(const Collective& collective);
  int64_t idle_ns() const { return elapse_ns - transit_ns - wait_ns; }
  double wait_ratio() const;
  double synchronization_ratio() const;
};

/// What was sent by one kind of transport. Only senders count a message, so sums over ranks count none twice.
struct AscendTraffic {
  int64_t bytes = 0, transit_ns = 0, num_messages = 0, num_large = 0;
  std::map<int64_t, std::pair<int64_t, int64_t>> sizes;  // bytes of a message -> how many, their ns

  void add(const CollectiveLink& link, bool is_large);
  double gb_per_s() const;
  double large_ratio() const;
};

/// Within the host and between hosts.
struct AscendVolume {
  AscendTraffic near, far;

  void add(const AscendRank& rank, const CollectiveLink& link);
};

/// What was sent to each target in collectives of one kind. The rank itself is among them: readers find the ranks of a group by
/// their links to themselves.
std::map<int32_t, AscendTraffic> sent_by_target(const AscendRank& rank, std::span<const Collective> collectives,
                                                bool is_dispatch);

/// The rank's collectives of a step.
std::span<const Collective> collectives_of(const AscendRank& rank, uint32_t step);
std::span<const CollectiveLink> links_of(const AscendRank& rank, const Collective& collective);

}  // namespace ferry
