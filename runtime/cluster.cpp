#include "runtime/cluster.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/gloo/gloo_group.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr std::size_t kComplaintBytes = 512;  // a longer complaint is cut
constexpr std::chrono::seconds kStartTimeout{60};
constexpr std::chrono::milliseconds kExitTimeout{4000};  // from a loss to the end of this process

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

/// Whether rank 0 runs on this host: every rank tells its host name.
bool is_coordinator_on_host(Group& group, const std::string& host_name) {
  std::vector<std::byte> mine(256), all(256 * static_cast<std::size_t>(group.size()));
  std::memcpy(mine.data(), host_name.data(), std::min<std::size_t>(host_name.size(), 255));
  group.all_gather(mine, all, std::chrono::steady_clock::now() + kStartTimeout);
  return std::equal(mine.begin(), mine.end(), all.begin());
}

}  // namespace

Cluster::Cluster(const EngineOptions& options) {
  if (!MpiRuntime::launched_by_mpirun()) return;
  mpi_ = std::make_unique<MpiRuntime>();
  rank_ = mpi_->rank();
  size_ = mpi_->size();
  check_context().rank = rank_.value;
  if (size_ == 1) return;
  ranks_on_host_ = mpi_->local_size();
  std::unique_ptr<Group> mpi_group = make_mpi_group(*mpi_);
  coordinator_on_host_ = is_coordinator_on_host(*mpi_group, mpi_->host_name());
  const GlooOptions gloo{.net_interface = options.net_interface};
  const bool one_host = mpi_->local_size() == size_;
  const bool use_gloo = options.transport == TransportKind::kGloo || (options.transport == TransportKind::kAuto && !one_host);
  if (use_gloo) {
    group_ = make_gloo_group(*mpi_group, gloo);
    bootstrap_ = std::move(mpi_group);
  } else {
    group_ = std::move(mpi_group);
  }
  Group& bootstrap = use_gloo ? *bootstrap_ : *group_;
  liveness_ =
      std::make_unique<LivenessMonitor>(bootstrap, gloo, [this](Rank lost, const std::string& reason) { lose(lost, reason); });
}

void Cluster::lose(Rank lost, const std::string& reason) {
  group_->fail(lost, reason);
  const std::scoped_lock lock(mutex_);
  if (!lost_reason_.empty()) return;
  lost_reason_ = "rank " + std::to_string(lost.value) + ": " + reason;
  if (on_lost_) on_lost_(lost_reason_);
  exit_guard_ = std::thread([this] { guard_exit(); });
}

/// A lost rank ends the job. Should the thread that talks to MPI not come back to see it (Open MPI's TCP transport can block
/// for good inside MPI_Test when a connection breaks in mid-message), the process ends here.
void Cluster::guard_exit() {
  std::unique_lock lock(mutex_);
  if (left_.wait_for(lock, kExitTimeout, [this] { return is_leaving_; })) return;
  std::fprintf(stderr, "ferry: rank %d leaves without cleaning up: %s\n", rank_.value, lost_reason_.c_str());
  std::fflush(nullptr);
  std::_Exit(EXIT_FAILURE);
}

Cluster::~Cluster() {
  liveness_.reset();
  {
    const std::scoped_lock lock(mutex_);
    is_leaving_ = true;
  }
  left_.notify_all();
  if (exit_guard_.joinable()) exit_guard_.join();
  if (abandoned_ && mpi_ != nullptr) mpi_->abandon();
  if (abandoned_ && group_ != nullptr) group_->abort();
}

int Cluster::default_threads() const {
  const int cores = available_cores();
  if (is_coordinator()) return cores;
  const int workers = ranks_on_host_ - (coordinator_on_host_ ? 1 : 0);
  return std::max(1, cores / std::max(1, workers));
}

std::chrono::microseconds Cluster::thread_spin() const { return std::chrono::microseconds(ranks_on_host_ > 1 ? 0 : 50); }

Cluster::LossWatch::LossWatch(Cluster& cluster, std::function<void(const std::string&)> on_lost) : cluster_(cluster) {
  const std::scoped_lock lock(cluster_.mutex_);
  cluster_.on_lost_ = std::move(on_lost);
  if (!cluster_.lost_reason_.empty()) cluster_.on_lost_(cluster_.lost_reason_);
}

Cluster::LossWatch::~LossWatch() {
  const std::scoped_lock lock(cluster_.mutex_);
  cluster_.on_lost_ = {};
}

void Cluster::agree(const std::string& complaint, std::chrono::milliseconds timeout) {
  if (group_ == nullptr) {
    if (!complaint.empty()) throw Error(ErrorCode::kFailedPrecondition, complaint);
    return;
  }
  std::vector<std::byte> mine(kComplaintBytes), all(kComplaintBytes * static_cast<std::size_t>(size_));
  std::memcpy(mine.data(), complaint.data(), std::min(complaint.size(), kComplaintBytes - 1));
  group_->all_gather(mine, all, std::chrono::steady_clock::now() + timeout);
  for (int r = 0; r < size_; ++r) {
    const auto* text = reinterpret_cast<const char*>(all.data() + static_cast<std::size_t>(r) * kComplaintBytes);
    if (*text != '\0') throw Error(ErrorCode::kFailedPrecondition, "rank " + std::to_string(r) + ": " + text);
  }
}

void Cluster::abandon() { abandoned_ = true; }

void Cluster::quick_exit_if_abandoned(int exit_code) {
  if (!abandoned_ || mpi_ == nullptr) return;
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace ferry
