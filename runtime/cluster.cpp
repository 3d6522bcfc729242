#include "runtime/cluster.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "comm/gloo/gloo_group.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr std::size_t kGreetingBytes = 256;
constexpr std::size_t kReportBytes = 1100;  // an Error's line, or terms
constexpr std::chrono::seconds kStartTimeout{60};
constexpr std::chrono::seconds kLeaveTimeout{2};         // for all ranks to hear that they leave
constexpr std::chrono::milliseconds kExitTimeout{4000};  // from a loss to the end of this process
constexpr std::chrono::seconds kLingerTimeout{3};        // for the coordinator to tell its clients and go
constexpr int64_t kMicroBatchRows = 256;                 // of fewer rows, reading the weights twice costs what overlapping wins

/// Every rank's text of less than `record_bytes`, by rank.
std::vector<std::string> gather_texts(Group& group, const std::string& text, std::size_t record_bytes, Deadline deadline) {
  std::vector<std::byte> mine(record_bytes), all(record_bytes * static_cast<std::size_t>(group.size()));
  std::memcpy(mine.data(), text.data(), std::min(text.size(), record_bytes - 1));
  group.all_gather(mine, all, deadline);
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < all.size(); begin += record_bytes)
    texts.emplace_back(reinterpret_cast<const char*>(all.data() + begin));
  return texts;
}

/// Ends the process if MPI does not start in time.
class StartGuard {
 public:
  StartGuard() : thread_([this] { watch(); }) {}
  /// MPI has started.
  ~StartGuard() {
    {
      const std::scoped_lock lock(mutex_);
      has_started_ = true;
    }
    started_.notify_all();
    thread_.join();
  }
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    if (started_.wait_for(lock, kStartTimeout, [this] { return has_started_; })) return;
    if (MpiRuntime::launch_rank() == 0) {
      std::fprintf(stderr, "ferry: error: not all ranks came within %lld s; each needs this program and valid options\n",
                   static_cast<long long>(kStartTimeout.count()));
    }
    std::fflush(nullptr);
    std::_Exit(EXIT_FAILURE);
  }

  std::mutex mutex_;
  std::condition_variable started_;
  bool has_started_ = false;
  std::thread thread_;
};

const char* transport_name(TransportKind kind) {
  switch (kind) {
    case TransportKind::kAuto: return "auto";
    case TransportKind::kMpi: return "mpi";
    case TransportKind::kGloo: return "gloo";
  }
  return "";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// The first line of `text` that is not in `other` at the same place.
std::string first_other_line(const std::string& text, const std::string& other) {
  const auto at =
      static_cast<std::size_t>(std::mismatch(text.begin(), text.end(), other.begin(), other.end()).first - text.begin());
  const std::size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  return text.substr(begin, text.find('\n', at) - begin);
}

Error disagreement(std::size_t rank, const std::string& theirs, const std::string& ours) {
  return {ErrorCode::kInvalidArgument, "rank " + std::to_string(rank) + " has " + theirs + ", the coordinator " + ours +
                                           "; allowed: the same on every rank"};
}

/// A rank's report is a letter for the error's code and its message, or a line break and its terms.
std::string report_of(const std::optional<Error>& complaint, const std::vector<std::string>& terms) {
  if (complaint) return static_cast<char>('A' + static_cast<int>(complaint->code())) + std::string(complaint->what());
  std::string report = "\n";
  for (const std::string& line : terms) report += line + "\n";
  return report;
}

/// What is wrong with the ranks' reports, if anything.
std::optional<Error> judge(const std::vector<std::string>& reports) {
  for (std::size_t r = 0; r < reports.size(); ++r) {
    if (reports[r][0] == '\n') continue;
    return Error(static_cast<ErrorCode>(reports[r][0] - 'A'),
                 (r == 0 ? "" : "rank " + std::to_string(r) + ": ") + reports[r].substr(1));
  }
  for (std::size_t r = 1; r < reports.size(); ++r) {
    if (reports[r] != reports[0])
      return disagreement(r, first_other_line(reports[r], reports[0]), first_other_line(reports[0], reports[r]));
  }
  return std::nullopt;
}

/// The cores that this process may run on, empty if the system does not say.
const cpu_set_t& own_cores() {
  static const cpu_set_t cores = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return set;
  }();
  return cores;
}

/// The same for ranks of one host that may run on the same cores.
std::string place_name(const std::string& host) {
  const std::string_view cores(reinterpret_cast<const char*>(&own_cores()), sizeof(cpu_set_t));
  return host + " " + std::to_string(std::hash<std::string_view>()(cores));
}

/// Waits a moment until all ranks are here, so that none takes one that leaves for a lost one.
void leave_together(Group& group) {
  try {
    group.barrier(std::chrono::steady_clock::now() + kLeaveTimeout);
  } catch (const Error&) {  // one has left already, so all know
  }
}

}  // namespace

int available_cores() { return std::max(1, CPU_COUNT(&own_cores())); }

Cluster::Cluster(const EngineOptions& options) {
  if (!MpiRuntime::launched_by_mpirun()) return;
  {
    const StartGuard guard;
    mpi_ = std::make_unique<MpiRuntime>();
  }
  rank_ = mpi_->rank();
  size_ = mpi_->size();
  check_context().rank = rank_.value;
  if (size_ == 1) return;
  try {
    join(options);
  } catch (...) {
    end_watch();
    mpi_->abandon();  // others may be waiting for this rank elsewhere
    throw;
  }
}

/// Ranks with different transports would wait for each other for ever.
void Cluster::check_greetings(const std::vector<std::string>& greetings, Group& group) {
  for (std::size_t r = 1; r < greetings.size(); ++r) {
    if (first_line(greetings[r]) == first_line(greetings[0])) continue;
    leave_together(group);
    if (!is_coordinator()) std::_Exit(EXIT_FAILURE);  // the coordinator says why
    throw disagreement(r, first_line(greetings[r]), first_line(greetings[0]));
  }
}

void Cluster::join(const EngineOptions& options) {
  std::unique_ptr<Group> mpi_group = make_mpi_group(*mpi_);
  const std::string greeting =
      std::string("--transport ") + transport_name(options.transport) + "\n" + place_name(mpi_->host_name());
  const std::vector<std::string> greetings =
      gather_texts(*mpi_group, greeting, kGreetingBytes, std::chrono::steady_clock::now() + kStartTimeout);
  check_greetings(greetings, *mpi_group);
  ranks_on_cores_ = static_cast<int>(std::count(greetings.begin(), greetings.end(), greeting));
  coordinator_on_cores_ = greetings[0] == greeting;
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
  lost_.notify_all();
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

/// From here on nobody is told of losses, and this process is free to end.
void Cluster::end_watch() {
  liveness_.reset();
  {
    const std::scoped_lock lock(mutex_);
    is_leaving_ = true;
  }
  left_.notify_all();
  if (exit_guard_.joinable()) exit_guard_.join();
}

Cluster::~Cluster() {
  end_watch();
  if (abandoned_ && mpi_ != nullptr) mpi_->abandon();
  if (abandoned_ && group_ != nullptr) group_->abort();
}

int Cluster::default_threads() const {
  const int cores = available_cores();
  if (is_coordinator()) return cores;
  const int workers = ranks_on_cores_ - (coordinator_on_cores_ ? 1 : 0);
  return std::clamp(2 * cores / std::max(1, workers), 1, cores);
}

int64_t Cluster::default_micro_batch() const { return group_ == nullptr || ranks_on_cores_ > 1 ? 0 : kMicroBatchRows; }

std::chrono::microseconds Cluster::thread_spin() const { return std::chrono::microseconds(ranks_on_cores_ > 1 ? 0 : 50); }

Cluster::LossWatch::LossWatch(Cluster& cluster, std::function<void(const std::string&)> on_lost) : cluster_(cluster) {
  const std::scoped_lock lock(cluster_.mutex_);
  cluster_.on_lost_ = std::move(on_lost);
  if (!cluster_.lost_reason_.empty()) cluster_.on_lost_(cluster_.lost_reason_);
}

Cluster::LossWatch::~LossWatch() {
  const std::scoped_lock lock(cluster_.mutex_);
  cluster_.on_lost_ = {};
}

void Cluster::agree(const std::function<Terms()>& prepare, std::chrono::milliseconds timeout) {
  Terms terms;
  std::optional<Error> complaint;
  try {
    terms = prepare();
  } catch (const Error& error) {
    complaint = error;
  } catch (const std::bad_alloc&) {
    complaint = Error(ErrorCode::kResourceExhausted, "out of memory while loading");
  } catch (const std::exception& error) {
    complaint = Error(ErrorCode::kInternal, error.what());
  }
  if (group_ == nullptr) {
    if (complaint) throw *complaint;
    return;
  }
  const std::vector<std::string> reports =
      gather_texts(*group_, report_of(complaint, terms), kReportBytes, std::chrono::steady_clock::now() + timeout);
  const std::optional<Error> verdict = judge(reports);
  if (!verdict) return;
  coordinator_tells_ = true;
  leave_together(*group_);
  throw *verdict;
}

void Cluster::linger() const {
  if (is_coordinator() || group_ == nullptr || group_->async_error().empty()) return;
  std::unique_lock lock(mutex_);
  lost_.wait_for(lock, kLingerTimeout, [this] { return !lost_reason_.empty(); });  // a worker's monitor watches rank 0 alone
}

void Cluster::abandon() { abandoned_ = true; }

void Cluster::quick_exit_if_abandoned(int exit_code) {
  if (!abandoned_ || mpi_ == nullptr) return;
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace ferry
