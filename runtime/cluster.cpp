#include "runtime/cluster.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "comm/gloo/gloo_group.h"
#include "comm/net_address.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/timeout_factor.h"
#include "runtime/cluster/last_word.h"
#include "runtime/elastic/door.h"
#include "runtime/version.h"

namespace ferry {
namespace {

constexpr std::chrono::seconds kStartTimeout{60};
constexpr std::chrono::seconds kLeaveTimeout{2};         // for all ranks to hear that they leave
constexpr std::chrono::milliseconds kExitTimeout{4000};  // from a loss to the end of this process
constexpr std::chrono::seconds kNoticeTimeout{3};        // for the coordinator to tell its clients and go

const char* transport_name(TransportKind kind) {
  switch (kind) {
    case TransportKind::kAuto: return "auto";
    case TransportKind::kGroup: return "group";
    case TransportKind::kMpi: return "mpi";
    case TransportKind::kGloo: return "gloo";
  }
  return "";
}

/// Waits a moment until all ranks are here, so that none takes one that leaves for a lost one.
void leave_together(Group& group) {
  try {
    group.barrier(group.now() + scaled_timeout(kLeaveTimeout));
  } catch (const Error&) {  // one has left already, so all know
  }
}

/// Ranks that are threads of this process.
CorePolicy shared_cores(const Group& group, const JobShape& shape) {
  return {.cores = available_cores(),
          .is_coordinator = shape.is_coordinator(group.rank()),
          .has_workers = shape.num_workers() > 0,
          .ranks_on_cores = shape.num_ranks,
          .coordinators_on_cores = shape.num_coordinators};
}

}  // namespace

Cluster::Cluster(std::unique_ptr<Group> group, TransportKind transport, int num_coordinators)
    : launched_(group->rank()),
      shape_{.num_ranks = group->size(), .num_coordinators = num_coordinators},
      cores_(shared_cores(*group, shape_)),
      group_(std::move(group)) {
  if (shape_.num_ranks == 1) {
    group_.reset();
  } else if (transport == TransportKind::kAuto) {
    connect(*group_, "");
  } else {
    group_links_ = std::make_unique<GroupLinks>(*group_);
  }
}

Cluster::Cluster(Given given)
    : launched_(given.group->rank()),
      shape_{.num_ranks = given.group->size()},
      cores_(shared_cores(*given.group, shape_)),
      works_now_(std::move(given.works_now)),
      takes_workers_(given.takes_workers),
      group_(std::move(given.group)),
      links_(given.make_links(note_ends())) {
  cores_.has_workers = cores_.has_workers || takes_workers_;
  if (shape_.num_ranks == 1) group_.reset();
}

Cluster::Cluster(const EngineOptions& options) : owns_process_(true) {
  cores_.cores = available_cores();
  if (!MpiRuntime::launched_by_mpirun()) {
    divide(options);
    make_elastic(options);
    return;
  }
  {
    ExitGuard start;  // MPI waits for all ranks without a deadline
    const std::chrono::seconds limit = scaled_timeout(kStartTimeout);
    start.end_within(limit, MpiRuntime::launch_rank() != 0
                                ? ""
                                : "ferry: error: not all ranks came within " + std::to_string(limit.count()) +
                                      " s; each needs this program and valid options");
    mpi_ = std::make_unique<MpiRuntime>();
  }
  launched_ = mpi_->rank();
  shape_.num_ranks = mpi_->size();
  check_context().rank = launched_.value;
  if (shape_.num_ranks == 1) {
    divide(options);
    make_elastic(options);
    return;
  }
  try {
    join(options);
    make_elastic(options);
  } catch (...) {
    end_watch();
    mpi_->abandon();  // others may be waiting for this rank elsewhere
    throw;
  }
}

/// What is wrong with --net-interface at a rank that others connect to: before they try to, so that all hear of it.
std::optional<Error> Cluster::net_complaint(Group& group, const EngineOptions& options) const {
  const bool is_one_host = all_share_a_host(group, group.now() + scaled_timeout(kStartTimeout));
  const bool is_met = options.transport == TransportKind::kAuto && launched_.value < options.sharing.coordinators;
  if (!is_met && options.transport != TransportKind::kGloo) return std::nullopt;
  try {
    choose_net_address(options.net_interface, is_one_host);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// Ranks with different transports would wait for each other for ever, and those of another program misread each other.
void Cluster::greet(Group& group, const EngineOptions& options) {
  const HandshakeReport own{.complaint = net_complaint(group, options),
                            .terms = {{program_identity()},
                                      {std::string("--transport ") + transport_name(options.transport)},
                                      {"--coordinators " + std::to_string(options.sharing.coordinators)}},
                            .place = place_name(mpi_->host_name())};
  const std::vector<HandshakeReport> reports = exchange_reports(group, own, group.now() + scaled_timeout(kStartTimeout));
  if (const std::optional<Error> disagreement = find_disagreement(reports)) {
    leave_together(group);
    if (launched_ != Rank{0}) exit_now(EXIT_FAILURE);  // the first says why
    throw *disagreement;
  }
  try {
    divide(options);
  } catch (const Error&) {
    leave_together(group);
    if (launched_ != Rank{0}) exit_now(EXIT_FAILURE);
    throw;
  }
  for (const HandshakeReport& report : reports) hosts_.push_back(host_of_place(report.place));
  const auto shares_cores = [&](const HandshakeReport& other) { return other.place == own.place; };
  const auto coordinators = std::span(reports).first(static_cast<std::size_t>(shape_.num_coordinators));
  cores_ = {.cores = available_cores(),
            .is_coordinator = is_coordinator(),
            .has_workers = shape_.num_workers() > 0,
            .ranks_on_cores = static_cast<int>(std::ranges::count_if(reports, shares_cores)),
            .coordinators_on_cores = static_cast<int>(std::ranges::count_if(coordinators, shares_cores))};
}

/// Which ranks are coordinators; there must be a worker for several of them, or a port for some to come, where links are such
/// that they can.
void Cluster::divide(const EngineOptions& options) {
  const bool has_group_links = shape_.num_ranks > 1 && options.transport != TransportKind::kAuto;
  if (has_group_links && !options.elastic.address.empty())
    throw_invalid(std::string("--elastic with --transport ") + transport_name(options.transport) + "; allowed: with auto");
  const int most = std::max(1, options.elastic.address.empty() ? shape_.num_ranks - 1 : shape_.num_ranks);
  if (options.sharing.coordinators > most) {
    throw_invalid("--coordinators " + std::to_string(options.sharing.coordinators) + " of " + std::to_string(shape_.num_ranks) +
                  " ranks (launch/mpirun.sh -np); allowed: up to " + std::to_string(most) +
                  (options.elastic.address.empty() ? ", so that there is a worker" : ""));
  }
  shape_.num_coordinators = options.sharing.coordinators;
}

void Cluster::join(const EngineOptions& options) {
  group_ = make_mpi_group(*mpi_);
  greet(*group_, options);
  if (options.transport == TransportKind::kAuto) return connect(*group_, options.net_interface);
  const GlooOptions gloo{.net_interface = options.net_interface};
  if (options.transport == TransportKind::kGloo) {
    std::unique_ptr<Group> gloo_group = make_gloo_group(*group_, gloo);
    bootstrap_ = std::exchange(group_, std::move(gloo_group));
  }
  group_links_ = std::make_unique<GroupLinks>(*group_);
  Group& bootstrap = bootstrap_ ? *bootstrap_ : *group_;
  liveness_ =
      std::make_unique<LivenessMonitor>(bootstrap, gloo, [this](Rank lost, const std::string& reason) { lose(lost, reason); });
}

void Cluster::connect(Group& bootstrap, const std::string& net_interface) {
  const Deadline deadline = bootstrap.now() + scaled_timeout(kStartTimeout);
  const MeetingPlace place{.is_one_host = all_share_a_host(bootstrap, deadline), .net_interface = net_interface};
  if (shape_.num_workers() > 0) links_ = std::make_unique<JobLinks>(bootstrap, shape_, place, note_ends(), deadline);
  if (shape_.num_coordinators == 1) return;
  coordinator_links_ = std::make_unique<CoordinatorLinks>(bootstrap, shape_, place, deadline);
  abandoned_ = true;  // each coordinator ends when its own requests have, and MPI would wait for all
}

OnLinkEnd Cluster::note_ends() {
  return [this](Rank peer, LinkEnd end, const std::string& reason) { note_end(peer, end, reason); };
}

/// A rank without a coordinator has nothing to do; one that is lost while ranks start is missed by all.
void Cluster::note_end(Rank peer, LinkEnd end, const std::string& reason) {
  if (end == LinkEnd::kBroken) abandoned_ = true;  // MPI would wait for it at its end
  const bool is_only_source = !is_coordinator() && shape_.num_coordinators == 1;
  if (!has_agreed_ || (end == LinkEnd::kBroken && is_only_source))
    lose(is_coordinator() ? shape_.launched(peer) : peer, reason);
}

/// Where workers may join, they have links of their own kind.
void Cluster::make_elastic(const EngineOptions& options) {
  if (options.elastic.address.empty() || !is_coordinator()) return;
  if (!links_) links_ = std::make_unique<LoneLinks>(note_ends());
  cores_.has_workers = true;
  takes_workers_ = true;
}

LinkHub* Cluster::hub() {
  if (links_) return &links_->hub();
  return group_links_.get();
}

Link& Cluster::link(Rank peer) { return links_ ? links_->link(peer) : group_links_->link(peer); }

WorkerHome Cluster::home(Rank peer) const {
  const auto launched = static_cast<std::size_t>(shape_.launched(peer).value);
  return {.host = launched < hosts_.size() ? hosts_[launched] : "", .address = links_ ? links_->address(peer) : ""};
}

std::unique_ptr<Door> Cluster::open_door(const ElasticOptions& options, DoorRules rules) {
  FERRY_CHECK(takes_workers_);
  return links_->open_door(options, std::move(rules));
}

const char* Cluster::transport() const {
  if (links_) return "sockets";
  return group_ == nullptr ? "local" : group_->name();
}

/// A lost rank ends the job. Should the thread that talks to MPI not come back to see it (Open MPI's TCP transport can block
/// for good inside MPI_Test when a connection breaks in mid-message), the guard ends the process.
void Cluster::lose(Rank lost, const std::string& reason) {
  group_->fail(lost, reason);
  const std::string who = "rank " + std::to_string(lost.value) + ": " + reason;
  if (!losses_.report(who) || !owns_process_) return;
  exit_guard_.end_within(scaled_timeout(kExitTimeout),
                         "ferry: rank " + std::to_string(launched_.value) + " leaves without cleaning up: " + who);
}

/// From here on nobody is told of losses, and this process is free to end.
void Cluster::end_watch() {
  liveness_.reset();
  links_.reset();
  coordinator_links_.reset();
  exit_guard_.leave();
}

Cluster::~Cluster() {
  // A worker may be done while its coordinator still writes a report, which must not take that for a loss.
  if (liveness_ && !abandoned_) liveness_->stop();
  end_watch();
  if (abandoned_ && mpi_ != nullptr) mpi_->abandon();
  if (abandoned_ && group_ != nullptr) group_->abort();
}

Cluster::LossWatch::LossWatch(Cluster& cluster, LossNotice::Listener on_lost) : cluster_(cluster) {
  cluster_.losses_.listen(std::move(on_lost));
}

Cluster::LossWatch::~LossWatch() { cluster_.losses_.listen({}); }

std::string Cluster::agree(const std::function<Terms()>& prepare, std::chrono::milliseconds timeout) {
  has_met_ = true;
  HandshakeReport own;
  try {
    own.terms = prepare();
  } catch (const Error& error) {
    own.complaint = error;
  } catch (const std::bad_alloc&) {
    own.complaint = Error(ErrorCode::kResourceExhausted, "out of memory while loading");
  } catch (const std::exception& error) {
    own.complaint = Error(ErrorCode::kInternal, error.what());
  }
  if (group_ == nullptr) {
    if (own.complaint) throw *own.complaint;
    has_agreed_ = true;
    return "";
  }
  const std::vector<HandshakeReport> reports = exchange_reports(*group_, own, group_->now() + timeout);
  const std::optional<Error> disagreement = find_disagreement(reports);
  if (!disagreement) {
    has_agreed_ = true;
    if (links_) end_start();
    return describe_difference(reports);
  }
  first_tells_ = true;
  leave_together(*group_);
  throw *disagreement;
}

/// Over links this rank does without others from here on: workers say so, and coordinators hear it of all.
void Cluster::end_start() {
  std::vector<Link*> peers;
  const int num_peers = is_coordinator() ? shape_.num_workers() : shape_.num_coordinators;
  peers.reserve(static_cast<std::size_t>(num_peers));
  for (int32_t p = 0; p < num_peers; ++p) peers.push_back(&link(Rank{is_coordinator() ? p + 1 : p}));
  if (is_coordinator()) return hear_last_words(peers, links_->hub().now() + scaled_timeout(kStartTimeout));
  say_last_word(links_->hub(), peers);
}

void Cluster::await_coordinators_end() const {
  if (is_coordinator() || group_links_ == nullptr || group_->async_error().empty()) return;
  losses_.wait_for(scaled_timeout(kNoticeTimeout));  // a worker's monitor watches rank 0 alone
}

void Cluster::abandon() { abandoned_ = true; }

void Cluster::exit_if_abandoned(int exit_code) const {
  if (abandoned_ && mpi_ != nullptr) exit_now(exit_code);
}

}  // namespace ferry
