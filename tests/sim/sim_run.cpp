#include "tests/sim/sim_run.h"

#include <cstring>
#include <optional>
#include <utility>

#include "moe/wire.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/cluster.h"
#include "runtime/expert_worker.h"
#include "runtime/trace/trace_wire.h"
#include "tests/sim/planned_faults.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_judge.h"

namespace ferry::sim {
namespace {

constexpr std::chrono::hours kLongestRun{2};  // loading alone may take half an hour
constexpr std::chrono::seconds kLinger{3};    // of a worker whose group failed, for the coordinator to go first

/// Where a wrong bit is noticed: of a request up to the counts, of a reply the header, of everything else all.
std::size_t guarded_bytes(std::span<const std::byte> message, int tag) {
  const bool is_reply = tag == kReplyTag;
  if ((tag != kRequestTag && !is_reply) || message.size() < sizeof(WireHeader)) return message.size();
  WireHeader header;
  std::memcpy(&header, message.data(), sizeof header);
  const auto num_counts = static_cast<std::size_t>(header.kind == WireKind::kRows ? header.num_local_experts : 0);
  return header.kind == WireKind::kTrace ? message.size() : sizeof header + num_counts * sizeof(int32_t);
}

FaultyNetwork::Wire make_wire() {
  return {.guarded_bytes = guarded_bytes,
          .has_fixed_size = [](int tag) { return tag != kTraceReplyTag; }};  // captures hold real times
}

/// One job on the way.
class SimJob {
 public:
  SimJob(const SimPlan& plan, const Workload& workload, RankThreads& threads, EventLog& log, FaultyNetwork::Bug bug)
      : plan_(plan),
        workload_(workload),
        time_(threads, plan.num_workers + 1, plan.seed ^ 0x74696d65U, kLongestRun),
        network_(time_, plan.num_workers + 1, plan.faults, plan.seed ^ 0x6e657477U, make_wire(), log, bug),
        planned_(network_, time_, plan.planned_faults),
        coordinator_(plan, workload,
                     {.sleep = [this](Deadline until) { sleep(Rank{0}, until); },
                      .loss = [this] { return group_ == nullptr ? std::string() : group_->async_error(); },
                      .begin_step = [this](int64_t step) { planned_.begin_step(step); },
                      .look = [](const Engine&, uint32_t) {},
                      .leave = [] {}}),
        errors_(static_cast<std::size_t>(plan.num_workers) + 1) {
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
      Cluster cluster(network_.join(rank));
      run_role(rank, cluster);
    } catch (const Error& error) {
      errors_[static_cast<std::size_t>(rank.value)] = error;
      network_.log("rank " + std::to_string(rank.value) + " ends: " + error_code_name(error.code()),
                   std::string(": ") + error.what());
      network_.lose(rank);
    }
  }

  /// As launch/main.cpp does it.
  void run_role(Rank rank, Cluster& cluster) {
    try {
      if (rank.value == 0) {
        group_ = cluster.group();
        coordinator_.run(cluster);
      } else {
        run_expert_worker(workload_.options(plan_), cluster);
      }
      network_.log("rank " + std::to_string(rank.value) + " is done");
    } catch (const Error&) {
      if (rank.value != 0 && !cluster.group()->async_error().empty() && !network_.is_killed(rank)) linger(rank);
      cluster.abandon();
      throw;
    }
  }

  void linger(Rank rank) {
    time_.wait(rank, time_.now() + kLinger, [this] { return network_.is_lost(Rank{0}); });
  }

  void sleep(Rank rank, Deadline until) {
    time_.wait(rank, until, [this] { return network_.has_failed(Rank{0}); });
  }

  void judge();
  void judge_error(Rank rank, const Error& error);
  void fail(const std::string& what) { result_.failures.push_back(what); }

  const SimPlan& plan_;
  const Workload& workload_;
  VirtualTime time_;
  FaultyNetwork network_;
  PlannedFaults planned_;
  const Group* group_ = nullptr;  // the coordinator's, while it runs
  SimCoordinator coordinator_;
  std::vector<std::optional<Error>> errors_;  // that ended ranks
  SimResult result_;
};

void SimJob::judge() {
  for (std::size_t r = 0; r < errors_.size(); ++r) {
    const Rank rank{static_cast<int>(r)};
    if (errors_[r] && !network_.is_killed(rank)) judge_error(rank, *errors_[r]);
  }
  judge_requests(plan_, workload_, coordinator_, errors_[0].has_value(), result_);
  if (network_.is_harmless()) judge_capture(plan_, coordinator_, result_);
  count(network_, time_, result_);
}

/// A rank may end in an error only after a fault, by a code that says what it is, and must name a rank that the fault touched.
void SimJob::judge_error(Rank rank, const Error& error) {
  const std::string text = describe_end(rank, error);
  ++result_.errors[error_code_name(error.code())];
  if (network_.is_harmless()) fail(text + "; nothing had happened that breaks a job");
  if (!is_code_of_faults(error)) fail(text + "; not a code for this");
  for (int r = 0; r <= plan_.num_workers; ++r) {
    if (network_.was_harmed(Rank{r}) && names(error, Rank{r})) return;
  }
  fail(text + "; names no rank that a fault touched");
}

}  // namespace

SimResult play(const SimPlan& plan, const Workload& workload, RankThreads& threads, EventLog& log, FaultyNetwork::Bug bug) {
  SimResult result = SimJob(plan, workload, threads, log, bug).play();
  result.log_hash = log.hash();
  return result;
}

}  // namespace ferry::sim
