#include "tests/sim/sim_coordinator.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/cluster.h"
#include "runtime/rank_setup.h"
#include "tests/support/manual_clock.h"

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

SimCoordinator::SimCoordinator(const SimPlan& plan, const Workload& workload, Surroundings surroundings)
    : plan_(plan),
      workload_(workload),
      surroundings_(std::move(surroundings)),
      wants_snapshot_(plan.snapshot_at.has_value()),
      open_(plan.requests.size(), nullptr),
      outcomes_(plan.requests.size()) {}

void SimCoordinator::run(Cluster& cluster) {
  hub_ = cluster.hub();
  start_ = hub_->now();
  ManualClock no_time;  // how long the ranks compute is of no account
  Engine engine(workload_.options(plan_), cluster, Engine::LogitRows::kSampled, no_time);
  scheduler_.emplace(engine.scheduler_options());
  try {
    serve(engine);
    surroundings_.leave();
  } catch (const Error&) {
    fail_all(engine);
    throw;
  } catch (...) {  // it was killed
    engine.abandon();
    throw;
  }
}

void SimCoordinator::serve(Engine& engine) {
  while (true) {
    if (const std::string loss = surroundings_.loss(); !loss.empty()) throw Error(ErrorCode::kUnavailable, loss);
    take_requests(hub_->now());
    surroundings_.begin_step(engine.next_step());
    const bool ran_step = run_step(engine, *scheduler_, hub_->now());
    take_finished();
    look(engine);
    trace(engine, hub_->now(), ran_step);
    if (!ran_step && !wait_for_work(engine)) return;
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

bool SimCoordinator::wait_for_work(Engine& engine) {
  if (!engine.trace().is_idle()) return true;
  Deadline next = Deadline::max();
  if (next_request_ < plan_.requests.size()) next = time(plan_.requests[next_request_].arrival);
  if (wants_snapshot_) next = std::min(next, time(*plan_.snapshot_at));
  if (plan_.links && hub_->now() < time(plan_.links->open_until)) next = std::min(next, time(plan_.links->open_until));
  if (next == Deadline::max()) return false;
  const Deadline keep_alive = hub_->now() + kKeepAlivePeriod;
  idle(engine, std::min(next, keep_alive));
  if (hub_->now() >= keep_alive && surroundings_.loss().empty()) engine.keep_alive();
  return true;
}

void SimCoordinator::idle(Engine& engine, Deadline next) {
  if (!plan_.links) return surroundings_.sleep(next);  // where nobody comes or goes
  while (hub_->now() < next) {
    surroundings_.sleep(std::min(next, hub_->now() + engine.idle_tick()));
    engine.tend_workers();
    look(engine);
  }
}

void SimCoordinator::trace(Engine& engine, Deadline now, bool ran_step) {
  if (wants_snapshot_ && time(*plan_.snapshot_at) <= now) {
    wants_snapshot_ = false;
    engine.trace().save_snapshot();
  }
  engine.trace().work(ran_step);
  if (const std::optional<Capture> capture = engine.trace().take())
    capture_complaint_ = plan_.links && !plan_.links->newcomers.empty() ? "" : judge_capture(*capture, plan_.num_workers + 1);
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
