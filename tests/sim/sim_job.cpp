#include "tests/sim/sim_job.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/faulty/faulty_links.h"
#include "moe/wire.h"
#include "runtime/base/check.h"
#include "runtime/expert_worker.h"
#include "runtime/trace/trace_wire.h"
#include "tests/sim/sim_judge.h"

namespace ferry::sim {
namespace {

constexpr std::chrono::hours kLongestRun{2};  // loading alone may take half an hour

std::string name(Rank rank) { return "rank " + std::to_string(rank.value); }

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

}  // namespace

SimJob::SimJob(const SimPlan& plan, const SimPlan& followed, const Workload& workload, RankThreads& threads, EventLog& log,
               FaultyNetwork::Bug bug)
    : plan_(plan),
      followed_(followed),
      workload_(workload),
      log_(log),
      time_(threads, plan.num_ranks(), plan.seed ^ 0x74696d65U, kLongestRun),
      network_(time_, plan.num_ranks(), plan.faults, plan.seed ^ 0x6e657477U, make_wire(), log, bug),
      planned_(network_, time_, plan.planned_faults),
      coordinator_(followed, workload,
                   {.sleep = [this](Deadline until) { sleep(until); },
                    .loss = [this] { return loss(); },
                    .begin_step = [this](int64_t step) { planned_.begin_step(step); },
                    .look = [this](const Engine& engine, uint32_t epoch) { look(engine, epoch); },
                    .leave = [this] { leave(); }}),
      is_done_(static_cast<std::size_t>(plan.num_ranks())),
      errors_(static_cast<std::size_t>(plan.num_ranks())) {
  network_.set_drop_rate(plan.drop_rate);
}

SimResult SimJob::play() {
  time_.run([this](Rank rank) { run_rank(rank); });
  judge();
  result_.log_hash = log_.hash();
  return std::move(result_);
}

void SimJob::run_rank(Rank rank) {
  const auto idx = static_cast<std::size_t>(rank.value);
  check_context() = {.rank = rank.value};
  try {
    play_rank(rank);
    is_done_[idx] = true;
    network_.log(name(rank) + " is done");
  } catch (const Error& error) {
    errors_[idx] = error;
    network_.log(name(rank) + " ends: " + error_code_name(error.code()), std::string(": ") + error.what());
    network_.lose(rank);
  } catch (const RankKilled&) {
    network_.log(name(rank) + " was killed");
  }
  end_rank(rank);
}

/// As launch/main.cpp does it.
void SimJob::run_role(Rank rank, Cluster& cluster) {
  if (rank == Rank{0}) {
    coordinator_.run(cluster);
  } else {
    run_expert_worker(workload_.options(followed_), cluster);
  }
}

void SimJob::fail(const std::string& what) {
  if (std::ranges::find(result_.failures, what) == result_.failures.end()) result_.failures.push_back(what);
}

void SimJob::judge() {
  for (std::size_t r = 0; r < errors_.size(); ++r) {
    const Rank rank{static_cast<int32_t>(r)};
    if (errors_[r] && !network_.is_killed(rank)) judge_error(rank, *errors_[r]);
  }
  judge_more();
  judge_requests(plan_, workload_, coordinator_, !is_done_[0], result_);
  if (must_capture_all()) judge_capture(plan_, coordinator_, result_);
  count(network_, time_, result_);
}

void SimJob::judge_error(Rank rank, const Error& error) {
  const std::string text = describe_end(rank, error);
  ++result_.errors[error_code_name(error.code())];
  if (network_.is_harmless()) fail(text + "; nothing had happened that breaks a job");
  if (!is_code_of_faults(error)) fail(text + "; not a code for this");
  if (!blames_rightly(rank, error)) fail(text + "; names no rank that a fault touched");
}

}  // namespace ferry::sim
