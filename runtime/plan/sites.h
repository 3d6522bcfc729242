#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/plan/plan_types.h"

namespace ferry {

/// Which of the hosts, counted one by one, ranks are on. Coordinators take those that are for coordinators, then those that are
/// for anybody, one each as long as there are some; workers those that are for workers, then the others that no coordinator is
/// on, in turn; where none is left, they share the coordinators'.
struct PlanSites {
  std::vector<const PlanHost*> hosts;     // one by one
  std::vector<int64_t> coordinator_host;  // [coordinators] index into hosts
  std::vector<int64_t> worker_host;       // [workers] likewise
  std::vector<int64_t> coordinators_on;   // [hosts]
  std::vector<int64_t> workers_on;        // likewise

  bool is_together = false;  // all ranks are on one host

  const PlanHost& home() const { return *hosts[static_cast<std::size_t>(coordinator_host.front())]; }
  const PlanHost& host_of(std::size_t worker) const { return *hosts[static_cast<std::size_t>(worker_host[worker])]; }
  /// Hosts with coordinators, and with workers.
  int64_t num_coordinator_hosts() const;
  int64_t num_worker_hosts() const;
  /// The most coordinators on one host.
  int64_t most_coordinators() const;
};

/// At least one coordinator. Throws Error{kInvalidArgument} where hosts of a kind are there for one role only and none is left
/// for the other.
PlanSites make_sites(std::span<const PlanHost> hosts, int64_t coordinators, int64_t workers);

/// Costs of ranks of one host that share it, for a number of workers: between two that were measured, straight lines, beyond
/// them the last one goes on. For 0, and without measured ones, those of a rank alone.
class SharedView {
 public:
  /// `host` outlives this.
  SharedView(const PlanHost& host, int64_t workers);
  /// `get` returns seconds of RankCosts.
  template <class Get>
  double of(Get&& get) const {
    const double near = get(*near_);
    return near_ == far_ ? near : std::max(0.0, near + share_ * (get(*far_) - near));
  }

 private:
  const RankCosts* near_;
  const RankCosts* far_;
  double share_ = 0;  // from near to far
};

/// What some bytes take between processes of one host, with so many of them as workers.
double host_exchange_s(const PlanHost& host, int64_t workers, double num_bytes);
/// What they take over the host's link, with so many workers on other hosts: a round trip, a message for each further worker,
/// and the slower of the link and of what handles it.
double link_exchange_s(const PlanHost& host, int64_t workers, double num_bytes);

}  // namespace ferry
