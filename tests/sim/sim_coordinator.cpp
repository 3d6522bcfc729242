#include "tests/sim/sim_coordinator.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/cluster.h"
#include "runtime/rank_setup.h"

namespace ferry::sim {
namespace {

/// What a capture of a whole job lacks; empty if nothing.
std::string judge_capture(const Capture& capture, int num_ranks) {
  if (std::ssize(capture.ranks) != num_ranks) return std::to_string(capture.ranks.size()) + " ranks in the capture";
  for (const RankCapture& rank : capture.ranks) {
    if (rank.host.starts_with("(")) return "rank " + std::to_string(rank.rank) + " is not in the capture: " + rank.host;
  }
  return {};
}

}  // namespace

SimCoordinator::SimCoordinator(const SimPlan& plan, const Workload& workload, Sleep sleep)
    : plan_(plan),
      workload_(workload),
      sleep_(std::move(sleep)),
      wants_snapshot_(plan.snapshot_at.has_value()),
      open_(plan.requests.size(), nullptr),
      outcomes_(plan.requests.size()) {}

void SimCoordinator::run(Cluster& cluster) {
  const Group& group = *cluster.group();
  start_ = group.now();
  Engine engine(workload_.options(plan_), cluster);
  scheduler_.emplace(engine.scheduler_options());
  try {
    serve(engine, group);
  } catch (const Error&) {
    fail_all(engine);
    throw;
  }
}

void SimCoordinator::serve(Engine& engine, const Group& group) {
  while (true) {
    if (const std::string lost = group.async_error(); !lost.empty()) throw Error(ErrorCode::kUnavailable, lost);
    take_requests(group.now());
    const bool ran_step = run_step(engine, *scheduler_, group.now());
    take_finished();
    trace(engine, group.now(), ran_step);
    if (!ran_step && !wait_for_work(engine, group)) return;
  }
}

void SimCoordinator::take_requests(Deadline now) {
  for (; next_request_ < plan_.requests.size() && time(plan_.requests[next_request_].arrival) <= now; ++next_request_) {
    const SimRequest& planned = plan_.requests[next_request_];
    Request request = workload_.request(planned.prompt_idx, planned.max_tokens);
    request.number = RequestNumber{next_request_};
    if (planned.deadline) request.deadline = time(*planned.deadline);
    validate_request(request, scheduler_->options());
    open_[next_request_] = scheduler_->add(std::move(request), time(planned.arrival));
    FERRY_CHECK(open_[next_request_] != nullptr);
  }
  for (std::size_t i = 0; i < open_.size(); ++i) {
    const std::optional<Duration> abort_at = plan_.requests[i].abort_at;
    if (open_[i] == nullptr || !abort_at || time(*abort_at) > now) continue;
    scheduler_->abort(*open_[i]);
    open_[i] = nullptr;
  }
}

bool SimCoordinator::wait_for_work(Engine& engine, const Group& group) {
  if (!engine.trace().is_idle()) return true;
  Deadline next = Deadline::max();
  if (next_request_ < plan_.requests.size()) next = time(plan_.requests[next_request_].arrival);
  if (wants_snapshot_) next = std::min(next, time(*plan_.snapshot_at));
  if (next == Deadline::max()) return false;
  const Deadline keep_alive = group.now() + kKeepAlivePeriod;
  sleep_(std::min(next, keep_alive));
  if (group.now() >= keep_alive && group.async_error().empty()) engine.keep_alive();
  return true;
}

void SimCoordinator::trace(Engine& engine, Deadline now, bool ran_step) {
  if (wants_snapshot_ && time(*plan_.snapshot_at) <= now) {
    wants_snapshot_ = false;
    engine.trace().save_snapshot();
  }
  engine.trace().work(ran_step);
  if (const std::optional<Capture> capture = engine.trace().take())
    capture_complaint_ = judge_capture(*capture, plan_.num_workers + 1);
}

void SimCoordinator::take_finished() {
  for (const std::unique_ptr<Sequence>& sequence : scheduler_->take_finished()) {
    const auto idx = static_cast<std::size_t>(sequence->request.number);
    open_[idx] = nullptr;
    Outcome& outcome = outcomes_[idx];
    outcome.tokens.assign(sequence->tokens.begin() + sequence->num_prompt(), sequence->tokens.end());
    outcome.reason = sequence->finish_reason;
    ++outcome.num_ends;
  }
}

void SimCoordinator::fail_all(Engine& engine) {
  engine.abandon();
  engine.trace().abandon_workers();
  engine.trace().work(false);
  scheduler_->finish_all(FinishReason::kError, {});
  take_finished();
}

}  // namespace ferry::sim
