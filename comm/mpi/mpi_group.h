#pragma once

#include <memory>
#include <string>

#include "comm/group.h"

// MPI: launches the job, tells every process its rank, and carries data inside a healthy job. MPI itself never reports a dead
// peer (Open MPI 4.1 has no ULFM): LivenessMonitor notices, its owner calls Group::fail, and the waits of this group see that.

namespace ferry {

/// MPI_Init and MPI_Finalize; at most one per process. MPI is called from one thread at a time: construct and destroy this on
/// the main thread, and let one thread at a time use the group. Blocking collectives happen in the constructor only.
class MpiRuntime {
 public:
  /// Whether a launcher (mpirun, srun and the like) started this process as part of a job, read from the variables it sets.
  /// Needs no MpiRuntime: without a launcher none is needed.
  static bool launched_by_mpirun();
  /// The rank that the launcher gave this process, 0 without one. Needs no MpiRuntime.
  static int launch_rank();
  /// Whether it is the first of the job's ranks that were given the same command line, as far as the launcher says so (Open MPI
  /// does): true for rank 0. Needs no MpiRuntime.
  static bool leads_command();

  MpiRuntime();
  /// Finalizes, which may wait for all ranks, unless abandoned.
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  Rank rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  // 0 ‥ local_size-1 among the ranks of this host
  int local_size() const { return local_size_; }  // ranks on this host
  const std::string& host_name() const { return host_name_; }

  /// After a peer was lost, finalizing may hang. From here on the destructor leaves MPI alone, and the process has to leave
  /// through std::_Exit, past the exit handlers of the MPI library.
  void abandon() { abandoned_ = true; }

 private:
  Rank rank_;
  int size_ = 0;
  int local_rank_ = 0;
  int local_size_ = 0;
  std::string host_name_;
  bool abandoned_ = false;
};

/// Name and version of the MPI library, such as "Open MPI v4.1.4". Needs no MpiRuntime.
std::string mpi_version();

/// The largest message of the MPI group; larger ones are Error{kInvalidArgument}.
inline constexpr std::size_t kMaxMpiMessageBytes = 0x7fffffff;  // MPI counts are int

/// All ranks of the job, on a communicator of its own. Collective: every rank makes its groups in the same order. wait() polls
/// and sleeps between polls until a rank of the same host has posted or received something; fail() and abort() end it at once.
///
/// Limit: a message of more than 4 KiB that is larger than its receive ends the process, since Open MPI 4.1 has by then written
/// it past the receive's end (shared memory with single copy).
///
/// Limit: over TCP, Open MPI 4.1 can lock itself up inside MPI_Test when a peer's connection breaks in the middle of a message
/// (btl_tcp takes its endpoint's lock twice). No deadline ends that. Use gloo between hosts, or let the owner of the
/// LivenessMonitor end the process when its waiting thread has not come back a moment after fail(). Shared memory is not
/// affected.
std::unique_ptr<Group> make_mpi_group(MpiRuntime& runtime);

}  // namespace ferry
