#include "tests/sim/link_run.h"

#include <algorithm>
#include <utility>

#include "comm/faulty/seeded_random.h"
#include "runtime/base/error.h"
#include "tests/sim/sim_job.h"
#include "tests/sim/sim_judge.h"
#include "tests/sim/sim_newcomer.h"

namespace ferry::sim {
namespace {

constexpr std::chrono::seconds kLeastSilence{5};  // of a worker that makes an assignment ready, before it is lost
constexpr std::chrono::seconds kSignPeriod{1};    // between two signs of its life
constexpr int kTooEarly = 10;                     // the planted bug's share of the peer timeout

/// What the ranks go by.
SimPlan made_impatient(SimPlan plan, LinkBug bug) {
  if (bug == LinkBug::kMasksTooEarly) plan.peer_timeout /= kTooEarly;
  return plan;
}

class LinkJob final : public SimJob {
 public:
  /// `followed`: what the ranks go by. Both plans outlive the job.
  LinkJob(const SimPlan& plan, const SimPlan& followed, const Workload& workload, RankThreads& threads, EventLog& log,
          LinkBug bug)
      : SimJob(plan, followed, workload, threads, log, FaultyNetwork::Bug::kNone),
        random_(plan.seed ^ 0x72656164U),
        site_(network(), plan.num_workers, bug) {}

 private:
  void play_rank(Rank rank) override { rank.value <= plan().num_workers ? run_started(rank) : run_newcomer(rank); }
  void end_rank(Rank rank) override { site_.links().end_process(rank); }

  void run_started(Rank rank) {
    Cluster cluster(Cluster::Given{.group = network().join(rank, plan().num_workers + 1),
                                   .make_links = [&](OnLinkEnd on_end) { return site_.make_links(rank, std::move(on_end)); },
                                   .takes_workers = rank == Rank{0} && plan().links->takes_workers,
                                   .works_now = [this] { return works_now(); }});
    try {
      run_role(rank, cluster);
    } catch (...) {
      cluster.abandon();
      throw;
    }
  }

  void run_newcomer(Rank rank) {
    const auto idx = static_cast<std::size_t>(rank.value - plan().num_workers - 1);
    SimNewcomerRank newcomer(plan().links->newcomers[idx], workload(), site_, time(), rank, [this] { return works_now(); });
    if (!newcomer.run()) network().log("rank " + std::to_string(rank.value) + " found nobody");
  }

  bool works_now() { return random_.one_in(plan().links->reading_turns); }

  void sleep(Deadline until) override {
    time().wait(Rank{0}, until, [this] { return network().is_killed(Rank{0}); });
    site_.links().require_alive(Rank{0});
  }
  void look(const Engine& engine, uint32_t epoch) override;
  void leave() override { site_.links().leave(Rank{0}); }

  /// A fault has touched it; or one came while ranks started, where each waits for all.
  bool may_be_blamed(Rank rank) const { return network().was_touched(rank) || network().was_hit_at_start(); }

  /// Otherwise somebody in doubt may be missing.
  bool must_capture_all() const override {
    return std::ranges::all_of(network().num_faults(), [](int64_t count) { return count == 0; });
  }
  bool blames_rightly(Rank rank, const Error& error) override;
  void judge_more() override {
    for (const FaultyLinks::GivenUp& link : site_.links().given_up()) judge_given_up(link);
  }
  void judge_given_up(const FaultyLinks::GivenUp& link);

  SeededRandom random_;
  SimSite site_;
  uint32_t epoch_ = 0;  // of the last placement that was seen
};

/// Doubts and losses have their reason in what happened to the worker, or to the coordinator; placements follow each other.
void LinkJob::look(const Engine& engine, uint32_t epoch) {
  if (epoch < epoch_) fail("the placement went from epoch " + std::to_string(epoch_) + " to " + std::to_string(epoch));
  epoch_ = epoch;
  const WorkerReport report = engine.worker_report();
  result().num_covered = report.covered.by_workers + report.covered.by_coordinator;
  result().num_placements = epoch;
  for (const WorkerSight& worker : report.missing()) {
    if (worker.reason.ends_with(": has left")) continue;  // the last one, whose experts nobody else has
    const Rank process = site_.process_of(Rank{worker.rank});
    const std::string text =
        "rank " + std::to_string(process.value) + " is " + worker_state_name(worker.state) + ": " + worker.reason;
    if (!may_be_blamed(process) && !may_be_blamed(Rank{0})) fail(text + "; nothing had happened to it");
    if (worker.state == WorkerState::kMasked && network().is_harmless()) fail(text + "; it could have been waited for");
  }
}

/// The coordinator ends in an error only while ranks start. A worker has nobody but the coordinator: it names that one, and
/// something had happened to one of them.
bool LinkJob::blames_rightly(Rank rank, const Error& error) {
  if (coordinator().has_started()) {
    if (rank == Rank{0}) fail(describe_end(rank, error) + "; it can outlive its workers");
    if (names(error, Rank{0}) && (may_be_blamed(rank) || may_be_blamed(Rank{0}))) return true;
  }
  for (int32_t r = 0; r < plan().num_ranks(); ++r) {
    if (may_be_blamed(Rank{r}) && names(error, Rank{r})) return true;
  }
  return false;
}

/// A link that is whole is given up when its other end is silent for too long, or goes.
void LinkJob::judge_given_up(const FaultyLinks::GivenUp& link) {
  if (!coordinator().has_started() || link.wants_to_go) return;
  const bool is_late = link.unanswered && *link.unanswered >= plan().peer_timeout;
  const bool is_silent = link.silence + kSignPeriod >= std::max<Duration>(plan().peer_timeout, kLeastSilence);
  if (!is_late && !is_silent && link.unsent < plan().peer_timeout)
    fail("rank " + std::to_string(link.by.value) + " gave up rank " + std::to_string(link.of.value) +
         " too early: " + link.reason);
}

}  // namespace

SimResult play_over_links(const SimPlan& plan, const Workload& workload, RankThreads& threads, EventLog& log, LinkBug bug) {
  return LinkJob(plan, made_impatient(plan, bug), workload, threads, log, bug).play();
}

}  // namespace ferry::sim
