#include "tests/sim/group_run.h"

#include "runtime/base/error.h"
#include "runtime/cluster.h"
#include "tests/sim/sim_job.h"
#include "tests/sim/sim_judge.h"

namespace ferry::sim {
namespace {

constexpr std::chrono::seconds kLinger{3};  // of a worker whose group failed, for the coordinator to go first

class GroupJob final : public SimJob {
 public:
  GroupJob(const SimPlan& plan, const Workload& workload, RankThreads& threads, EventLog& log, FaultyNetwork::Bug bug)
      : SimJob(plan, plan, workload, threads, log, bug) {}

 private:
  void play_rank(Rank rank) override {
    Cluster cluster(network().join(rank));
    if (rank == Rank{0}) group_ = cluster.group();
    try {
      run_role(rank, cluster);
    } catch (const Error&) {
      if (rank != Rank{0} && !cluster.group()->async_error().empty() && !network().is_killed(rank)) linger(rank);
      cluster.abandon();
      throw;
    }
  }

  void linger(Rank rank) {
    time().wait(rank, time().now() + kLinger, [this] { return network().is_lost(Rank{0}); });
  }

  void sleep(Deadline until) override {
    time().wait(Rank{0}, until, [this] { return network().has_failed(Rank{0}); });
  }
  std::string loss() const override { return group_ == nullptr ? std::string() : group_->async_error(); }

  bool must_capture_all() const override { return network().is_harmless(); }
  bool blames_rightly(Rank /*rank*/, const Error& error) override {
    for (int32_t r = 0; r < plan().num_ranks(); ++r) {
      if (network().was_harmed(Rank{r}) && names(error, Rank{r})) return true;
    }
    return false;
  }

  const Group* group_ = nullptr;  // the coordinator's, while it runs
};

}  // namespace

SimResult play_over_group(const SimPlan& plan, const Workload& workload, RankThreads& threads, EventLog& log,
                          FaultyNetwork::Bug bug) {
  return GroupJob(plan, workload, threads, log, bug).play();
}

}  // namespace ferry::sim
