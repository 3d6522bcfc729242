#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/group_links.h"
#include "comm/liveness.h"
#include "comm/mpi/mpi_group.h"
#include "runtime/base/worker_home.h"
#include "runtime/cluster/coordinator_links.h"
#include "runtime/cluster/core_policy.h"
#include "runtime/cluster/exit_guard.h"
#include "runtime/cluster/handshake.h"
#include "runtime/cluster/job_links.h"
#include "runtime/cluster/job_shape.h"
#include "runtime/cluster/loss_notice.h"
#include "runtime/cluster/rank_links.h"
#include "runtime/cluster/rank_place.h"
#include "runtime/options/engine_options.h"

namespace ferry {

/// This process's place in the job: alone, a coordinator, or an expert worker; the links that carry rows, and what notices lost
/// ranks. Ranks are those of JobShape: a coordinator is rank 0 to its workers, of which each works for all coordinators.
///
/// Over sockets a worker that is lost ends its link alone, and what becomes of that is its user's business; while ranks start,
/// and over MPI or gloo, it ends the job.
class Cluster {
 public:
  /// Joins the job that the launcher started, if any. Throws Error when ranks cannot reach each other or were started with
  /// different transports. Ends the process when a rank does not come at all, for which MPI waits without a deadline.
  explicit Cluster(const EngineOptions& options);
  /// A place among ranks that are connected already and run on the same cores, such as threads of one process. Nobody watches
  /// over them.
  explicit Cluster(std::unique_ptr<Group> group, TransportKind transport = TransportKind::kGroup, int num_coordinators = 1);
  /// A place that is given with all that belongs to it, in a cluster that is simulated. Nobody watches over it.
  struct Given {
    std::unique_ptr<Group> group;  // of the ranks that start together, or of this one alone
    std::function<std::unique_ptr<RankLinks>(OnLinkEnd)> make_links;
    bool takes_workers = false;            // which may join while the job runs
    std::function<bool()> works_now = {};  // as of RankPlace
  };
  explicit Cluster(Given given);
  /// Leaves. Waits for the others only if nobody was lost and abandon() was not called.
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  Rank rank() const { return shape_.in_job(launched_); }
  /// What the launcher calls this rank.
  Rank launched_rank() const { return launched_; }
  /// A coordinator and the workers that were started with it.
  int size() const { return 1 + shape_.num_workers(); }
  int num_coordinators() const { return shape_.num_coordinators; }
  /// Those that were started with this process; of a coordinator that workers may join at least one, who is yet to come.
  int num_workers() const { return std::max(shape_.num_workers(), takes_workers_ ? 1 : 0); }
  /// This rank's number among those of its host.
  int local_rank() const { return mpi_ != nullptr ? mpi_->local_rank() : launched_.value; }
  bool is_coordinator() const { return shape_.is_coordinator(launched_); }
  RankPlace place() const { return {.rank = rank(), .local_rank = local_rank(), .cores = cores_, .works_now = works_now_}; }
  /// What the links of this rank are waited for with; null when this process is alone.
  LinkHub* hub();
  /// Whether workers may join while the job runs.
  bool takes_workers() const { return takes_workers_; }
  /// Where they do. This outlives it. Throws what SocketDoor does.
  std::unique_ptr<Door> open_door(const ElasticOptions& options, DoorRules rules);
  /// Of a coordinator with any worker that was started with it; of a worker with coordinator `peer`, 0 … num_coordinators() -
  /// 1.
  Link& link(Rank peer);
  /// Returns where worker `peer` runs, which was started with this coordinator.
  WorkerHome home(Rank peer) const;
  /// Of one of several coordinators with the others, else null.
  CoordinatorLinks* coordinators() { return is_coordinator() ? coordinator_links_.get() : nullptr; }
  /// Of all ranks that were started together, for while they start; null when this process is alone.
  Group* group() { return group_.get(); }
  /// "local", "sockets", "mpi" or "gloo".
  const char* transport() const;

  int64_t default_micro_batch() const { return cores_.default_micro_batch(); }

  /// While it lives, a lost rank is told to `on_lost`, from another thread and at most once; the reason names the rank. One
  /// at a time.
  class LossWatch {
   public:
    LossWatch(Cluster& cluster, LossNotice::Listener on_lost);
    ~LossWatch();
    LossWatch(const LossWatch&) = delete;
    LossWatch& operator=(const LossWatch&) = delete;

   private:
    Cluster& cluster_;
  };

  /// What ranks must have in common, coordinators too.
  using Terms = std::vector<Term>;
  /// Every rank calls this with its own preparations, which return what it works by. Throws the first rank's Error, or one
  /// that names the first line that is not the coordinator's, on all ranks. Waits up to `timeout` for the slowest. Returns what
  /// differs though it may, as describe_difference() says it.
  std::string agree(const std::function<Terms()>& prepare, std::chrono::milliseconds timeout);
  /// Whether agree() has been called: who fails before the others have heard of it in there leaves them waiting.
  bool has_met() const { return has_met_; }
  /// Whether agree() failed on all ranks: the first says why, and once is enough.
  bool first_tells() const { return first_tells_; }

  /// For a worker whose group failed: stays until the coordinator has gone, or a few seconds. It would otherwise leave within
  /// the moment in which the coordinator learns whom the job really lost, and be taken for the culprit. Returns at once if
  /// this rank failed by itself: then the others should hear of it.
  void await_coordinators_end() const;

  /// Somebody was lost or is stuck: do not wait for anyone. The process should end through exit_if_abandoned.
  void abandon();
  /// Ends the process at once where a regular exit could wait for a lost rank, otherwise returns.
  void exit_if_abandoned(int exit_code) const;

 private:
  void join(const EngineOptions& options);
  void make_elastic(const EngineOptions& options);
  void divide(const EngineOptions& options);
  OnLinkEnd note_ends();
  void connect(Group& bootstrap, const std::string& net_interface);
  void note_end(Rank peer, LinkEnd end, const std::string& reason);
  void greet(Group& group, const EngineOptions& options);
  std::optional<Error> net_complaint(Group& group, const EngineOptions& options) const;
  void lose(Rank lost, const std::string& reason);
  void end_start();
  void end_watch();

  Rank launched_{0};
  JobShape shape_;
  CorePolicy cores_;
  std::function<bool()> works_now_;
  bool takes_workers_ = false;
  bool owns_process_ = false;       // no other rank is in this process
  std::vector<std::string> hosts_;  // by what the launcher calls a rank; empty where nobody asked
  std::unique_ptr<MpiRuntime> mpi_;
  std::unique_ptr<Group> bootstrap_;  // MPI, if rows travel over gloo
  std::unique_ptr<Group> group_;      // of all ranks: while they start, and for rows over MPI or gloo
  std::unique_ptr<GroupLinks> group_links_;
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> has_agreed_{false};
  bool has_met_ = false;
  bool first_tells_ = false;
  LossNotice losses_;
  ExitGuard exit_guard_;
  std::unique_ptr<LivenessMonitor> liveness_;            // these last: their threads use all of the above
  std::unique_ptr<RankLinks> links_;                     // null: rows travel over the group, or not at all
  std::unique_ptr<CoordinatorLinks> coordinator_links_;  // null: there is one
};

}  // namespace ferry
