#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "comm/faulty/virtual_time.h"
#include "runtime/expert_server.h"
#include "tests/sim/sim_links.h"
#include "tests/sim/sim_plan.h"
#include "tests/sim/workload.h"

namespace ferry::sim {

/// `ferry worker` with one coordinator, as runtime/elastic/joining_worker.cpp runs it: comes, works by what it is told, goes.
class SimNewcomerRank {
 public:
  /// `rank` of the network. `works_now` as of RankPlace.
  SimNewcomerRank(const SimNewcomer& plan, const Workload& workload, SimSite& site, VirtualTime& time, Rank rank,
                  std::function<bool()> works_now);

  /// The whole life. Throws what ended it. False if nobody ever let it in.
  bool run();

 private:
  bool wants_to_leave() const { return plan_.leaves_at && time_.elapsed() >= *plan_.leaves_at; }
  void sleep(Duration time);
  /// Calls for a minute.
  std::optional<SimSite::Visit> call();
  void open(const SimSite::Visit& visit);

  const SimNewcomer& plan_;
  const Workload& workload_;
  SimSite& site_;
  VirtualTime& time_;
  const Rank rank_;
  const std::function<bool()> works_now_;
  FaultyHub hub_;
  std::unique_ptr<Link> link_;
  std::optional<ExpertShelf> shelf_;
  std::optional<ExpertHolder> holder_;
  std::optional<ExpertServer> server_;
};

}  // namespace ferry::sim
