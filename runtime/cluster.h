#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/group.h"
#include "comm/liveness.h"
#include "comm/mpi/mpi_group.h"
#include "runtime/options.h"

namespace ferry {

/// Cores that this process may run on, at least 1.
int available_cores();

/// This process's place in the job: alone, the coordinator (rank 0), or an expert worker; the group that carries rows, and
/// the monitor that notices lost ranks.
class Cluster {
 public:
  /// Joins the job that the launcher started, if any. Throws Error when ranks cannot reach each other or were started with
  /// different transports. Ends the process when a rank does not come at all, for which MPI waits without a deadline.
  explicit Cluster(const EngineOptions& options);
  /// Leaves. Waits for the others only if nobody was lost and abandon() was not called.
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  Rank rank() const { return rank_; }
  int size() const { return size_; }
  int num_workers() const { return size_ - 1; }
  bool is_coordinator() const { return rank_.value == 0; }
  /// Null when this process is alone.
  Group* group() { return group_.get(); }
  /// "local", "mpi" or "gloo".
  const char* transport() const { return group_ == nullptr ? "local" : group_->name(); }

  /// Threads of this rank if the user did not say: the coordinator takes all cores that it may run on, as workers compute while
  /// it waits. A worker takes twice its share: the busiest worker of a layer then goes on with the cores of those that are done.
  int default_threads() const;
  /// Rows of half a step from which it is computed in two micro-batches if the user did not say, 0 for never: where workers have
  /// cores of their own, they compute the experts of one while the coordinator runs the attention of the other.
  int64_t default_micro_batch() const;
  /// How long idle pool threads may spin: not at all where ranks share cores.
  std::chrono::microseconds thread_spin() const;

  /// While it lives, a lost rank is told to `on_lost`, from another thread and at most once; the reason names the rank. One
  /// at a time.
  class LossWatch {
   public:
    LossWatch(Cluster& cluster, std::function<void(const std::string& reason)> on_lost);
    ~LossWatch();
    LossWatch(const LossWatch&) = delete;
    LossWatch& operator=(const LossWatch&) = delete;

   private:
    Cluster& cluster_;
  };

  /// What ranks must have in common, one line each, such as "--dtype bf16" (at most 1 KiB together).
  using Terms = std::vector<std::string>;
  /// Every rank calls this with its own preparations, which return what it works by. Throws the first rank's Error, or one
  /// that names the first line that is not the coordinator's, on all ranks. Waits up to `timeout` for the slowest.
  void agree(const std::function<Terms()>& prepare, std::chrono::milliseconds timeout);
  /// Whether agree() failed on all ranks: the coordinator says why, and once is enough.
  bool coordinator_tells() const { return coordinator_tells_; }

  /// For a worker whose group failed: stays until the coordinator has gone, or a few seconds. It would otherwise leave within
  /// the moment in which the coordinator learns whom the job really lost, and be taken for the culprit. Returns at once if
  /// this rank failed by itself: then the others should hear of it.
  void linger() const;

  /// Somebody was lost or is stuck: do not wait for anyone. The process should end through quick_exit.
  void abandon();
  /// Ends the process at once where a regular exit could wait for a lost rank, otherwise returns.
  void quick_exit_if_abandoned(int exit_code);

 private:
  void join(const EngineOptions& options);
  void check_greetings(const std::vector<std::string>& greetings, Group& group);
  void lose(Rank lost, const std::string& reason);
  void guard_exit();
  void end_watch();

  Rank rank_{0};
  int size_ = 1;
  int ranks_on_cores_ = 1;  // that may run on the cores of this one
  bool coordinator_on_cores_ = true;
  std::unique_ptr<MpiRuntime> mpi_;
  std::unique_ptr<Group> bootstrap_;  // MPI, if rows travel over gloo
  std::unique_ptr<Group> group_;
  std::unique_ptr<LivenessMonitor> liveness_;
  std::atomic<bool> abandoned_{false};
  bool coordinator_tells_ = false;
  mutable std::mutex mutex_;              // guards on_lost_ and lost_reason_
  mutable std::condition_variable lost_;  // lost_reason_ was set
  std::function<void(const std::string&)> on_lost_;
  std::string lost_reason_;
  std::condition_variable left_;  // the destructor runs: exit_guard_ may end
  bool is_leaving_ = false;       // guarded by mutex_
  std::thread exit_guard_;        // started by the first loss
};

}  // namespace ferry
