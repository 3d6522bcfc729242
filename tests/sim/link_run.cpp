#include "tests/sim/link_run.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "comm/faulty/seeded_random.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/expert_worker.h"
#include "runtime/trace/trace_wire.h"
#include "tests/sim/planned_faults.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_judge.h"
#include "tests/sim/sim_newcomer.h"

namespace ferry::sim {
namespace {

constexpr std::chrono::hours kLongestLinkRun{2};
constexpr std::chrono::seconds kLeastSilence{5};  // of a worker that makes an assignment ready, before it is lost
constexpr std::chrono::seconds kSignPeriod{1};    // between two signs of its life
constexpr int kTooEarly = 10;                     // the planted bug's share of the peer timeout

FaultyNetwork::Wire make_network_wire() {
  return {.guarded_bytes = [](std::span<const std::byte> message, int) { return message.size(); },
          .has_fixed_size = [](int tag) { return tag != kTraceReplyTag; }};  // captures hold real times
}

/// What the ranks go by.
SimPlan made_impatient(SimPlan plan, LinkBug bug) {
  if (bug == LinkBug::kMasksTooEarly) plan.peer_timeout /= kTooEarly;
  return plan;
}

class LinkJob {
 public:
  LinkJob(const SimPlan& plan, const Workload& workload, RankThreads& threads, EventLog& log, LinkBug bug)
      : plan_(plan),
        followed_(made_impatient(plan, bug)),
        workload_(workload),
        random_(plan.seed ^ 0x72656164U),
        time_(threads, plan.num_ranks(), plan.seed ^ 0x74696d65U, kLongestLinkRun),
        network_(time_, plan.num_ranks(), plan.faults, plan.seed ^ 0x6e657477U, make_network_wire(), log),
        site_(network_, plan.num_workers, bug),
        planned_(network_, time_, plan.planned_faults),
        coordinator_(followed_, workload,
                     {.sleep = [this](Deadline until) { sleep(until); },
                      .loss = [] { return std::string(); },
                      .begin_step = [this](int64_t step) { planned_.begin_step(step); },
                      .look = [this](const Engine& engine, uint32_t epoch) { look(engine, epoch); },
                      .leave = [this] { site_.links().leave(Rank{0}); }}),
        errors_(static_cast<std::size_t>(plan.num_ranks())) {
    network_.set_drop_rate(plan.drop_rate);
  }

  SimResult play() {
    time_.run([this](Rank rank) { run_rank(rank); });
    judge();
    return std::move(result_);
  }

 private:
  void run_rank(Rank rank) {
    check_context() = {.rank = rank.value};
    try {
      rank.value <= plan_.num_workers ? run_started(rank) : run_newcomer(rank);
      network_.log("rank " + std::to_string(rank.value) + " is done");
    } catch (const Error& error) {
      errors_[static_cast<std::size_t>(rank.value)] = error;
      network_.log("rank " + std::to_string(rank.value) + " ends: " + error_code_name(error.code()),
                   std::string(": ") + error.what());
      network_.lose(rank);
    } catch (const RankKilled&) {
      network_.log("rank " + std::to_string(rank.value) + " was killed");
    }
    site_.links().end_process(rank);
  }

  void run_started(Rank rank) {
    Cluster cluster(Cluster::Given{.group = network_.join(rank, plan_.num_workers + 1),
                                   .make_links = [&](OnLinkEnd on_end) { return site_.make_links(rank, std::move(on_end)); },
                                   .takes_workers = rank == Rank{0} && plan_.links->takes_workers,
                                   .works_now = [this] { return works_now(); }});
    try {
      if (rank == Rank{0}) {
        coordinator_.run(cluster);
      } else {
        run_expert_worker(workload_.options(followed_), cluster);
      }
    } catch (...) {
      cluster.abandon();
      throw;
    }
  }

  void run_newcomer(Rank rank) {
    const auto idx = static_cast<std::size_t>(rank.value - plan_.num_workers - 1);
    SimNewcomerRank newcomer(plan_.links->newcomers[idx], workload_, site_, time_, rank, [this] { return works_now(); });
    if (!newcomer.run()) network_.log("rank " + std::to_string(rank.value) + " found nobody");
  }

  bool works_now() { return random_.one_in(plan_.links->reading_turns); }
  void sleep(Deadline until) {
    time_.wait(Rank{0}, until, [this] { return network_.is_killed(Rank{0}); });
    site_.links().require_alive(Rank{0});
  }
  void look(const Engine& engine, uint32_t epoch);

  /// A fault has touched it; or one came while ranks started, where each waits for all.
  bool may_be_blamed(Rank rank) const { return network_.was_touched(rank) || network_.was_hit_at_start(); }

  void judge();
  void judge_error(Rank rank, const Error& error);
  void judge_given_up(const FaultyLinks::GivenUp& link);
  void fail(const std::string& what) {
    if (std::ranges::find(result_.failures, what) == result_.failures.end()) result_.failures.push_back(what);
  }

  const SimPlan& plan_;
  const SimPlan followed_;
  const Workload& workload_;
  SeededRandom random_;
  VirtualTime time_;
  FaultyNetwork network_;
  SimSite site_;
  PlannedFaults planned_;
  SimCoordinator coordinator_;
  std::vector<std::optional<Error>> errors_;  // that ended ranks
  uint32_t epoch_ = 0;                        // of the last placement that was seen
  SimResult result_;
};

/// Doubts and losses have their reason in what happened to the worker, or to the coordinator; placements follow each other.
void LinkJob::look(const Engine& engine, uint32_t epoch) {
  if (epoch < epoch_) fail("the placement went from epoch " + std::to_string(epoch_) + " to " + std::to_string(epoch));
  epoch_ = epoch;
  const WorkerReport report = engine.worker_report();
  result_.num_covered = report.covered.by_workers + report.covered.by_coordinator;
  result_.num_placements = epoch;
  for (const WorkerSight& worker : report.missing()) {
    if (worker.reason.ends_with(": has left")) continue;  // the last one, whose experts nobody else has
    const Rank process = site_.process_of(Rank{worker.rank});
    const std::string text =
        "rank " + std::to_string(process.value) + " is " + worker_state_name(worker.state) + ": " + worker.reason;
    if (!may_be_blamed(process) && !may_be_blamed(Rank{0})) fail(text + "; nothing had happened to it");
    if (worker.state == WorkerState::kMasked && network_.is_harmless()) fail(text + "; it could have been waited for");
  }
}

void LinkJob::judge() {
  for (std::size_t r = 0; r < errors_.size(); ++r) {
    const Rank rank{static_cast<int32_t>(r)};
    if (errors_[r] && !network_.is_killed(rank)) judge_error(rank, *errors_[r]);
  }
  for (const FaultyLinks::GivenUp& link : site_.links().given_up()) judge_given_up(link);
  judge_requests(plan_, workload_, coordinator_, errors_[0].has_value() || network_.is_killed(Rank{0}), result_);
  const bool is_calm = std::ranges::all_of(network_.num_faults(), [](int64_t count) { return count == 0; });
  if (is_calm) judge_capture(plan_, coordinator_, result_);  // otherwise somebody in doubt may be missing
  count(network_, time_, result_);
}

/// The coordinator ends in an error only while ranks start. A worker has nobody but the coordinator: it names that one, and
/// something had happened to one of them.
void LinkJob::judge_error(Rank rank, const Error& error) {
  const std::string text = describe_end(rank, error);
  ++result_.errors[error_code_name(error.code())];
  if (network_.is_harmless()) fail(text + "; nothing had happened that breaks a job");
  if (!is_code_of_faults(error)) fail(text + "; not a code for this");
  if (coordinator_.has_started()) {
    if (rank == Rank{0}) fail(text + "; it can outlive its workers");
    if (names(error, Rank{0}) && (may_be_blamed(rank) || may_be_blamed(Rank{0}))) return;
  }
  for (int32_t r = 0; r < plan_.num_ranks(); ++r) {
    if (may_be_blamed(Rank{r}) && names(error, Rank{r})) return;
  }
  fail(text + "; names no rank that a fault touched");
}

/// A link that is whole is given up when its other end is silent for too long, or goes.
void LinkJob::judge_given_up(const FaultyLinks::GivenUp& link) {
  if (!coordinator_.has_started() || link.wants_to_go) return;
  const bool is_late = link.unanswered && *link.unanswered >= plan_.peer_timeout;
  const bool is_silent = link.silence + kSignPeriod >= std::max<Duration>(plan_.peer_timeout, kLeastSilence);
  if (!is_late && !is_silent && link.unsent < plan_.peer_timeout)
    fail("rank " + std::to_string(link.by.value) + " gave up rank " + std::to_string(link.of.value) +
         " too early: " + link.reason);
}

}  // namespace

SimResult play_over_links(const SimPlan& plan, const Workload& workload, RankThreads& threads, EventLog& log, LinkBug bug) {
  SimResult result = LinkJob(plan, workload, threads, log, bug).play();
  result.log_hash = log.hash();
  return result;
}

}  // namespace ferry::sim
