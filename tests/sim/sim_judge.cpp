#include "tests/sim/sim_judge.h"

#include <algorithm>
#include <cctype>
#include <span>

namespace ferry::sim {
namespace {

void judge_request(const SimPlan& plan, const Workload& workload, const Outcome& outcome, std::size_t idx, bool engine_failed,
                   SimResult& result) {
  const SimRequest& request = plan.requests[idx];
  const std::vector<TokenId>* answer = workload.answer(plan, request.prompt_idx);
  const auto fail = [&](const std::string& what) { result.failures.push_back("request " + std::to_string(idx) + " " + what); };
  result.tokens.push_back(outcome.tokens);
  if (std::ssize(outcome.tokens) > request.max_tokens) fail("got more tokens than it asked for");
  if (answer != nullptr && !std::ranges::equal(outcome.tokens, std::span(*answer).first(outcome.tokens.size())))
    fail("got other tokens than one process gives");
  if (outcome.num_ends > 1 || (outcome.num_ends == 0 && !engine_failed))
    fail("ended " + std::to_string(outcome.num_ends) + " times");
  switch (outcome.reason) {
    case FinishReason::kLength:
      if (std::ssize(outcome.tokens) != request.max_tokens) fail("ended before its length");
      return;
    case FinishReason::kAborted:
      if (!request.abort_at) fail("was given up by nobody");
      return;
    case FinishReason::kDeadline:
      if (!request.deadline) fail("had no deadline");
      return;
    case FinishReason::kNone:
    case FinishReason::kError:
      if (!engine_failed) fail("failed in an engine that did not");
      result.is_whole = false;
      return;
    case FinishReason::kStop: fail("stopped, which none can"); return;
  }
}

}  // namespace

void judge_requests(const SimPlan& plan, const Workload& workload, const SimCoordinator& coordinator, bool engine_failed,
                    SimResult& result) {
  result.is_whole = coordinator.has_started();
  for (std::size_t i = 0; i < plan.requests.size(); ++i)
    judge_request(plan, workload, coordinator.outcomes()[i], i, engine_failed, result);
}

void judge_capture(const SimPlan& plan, const SimCoordinator& coordinator, SimResult& result) {
  if (plan.snapshot_at && !coordinator.capture_complaint()) result.failures.emplace_back("the capture was not handed over");
  if (!coordinator.capture_complaint().value_or("").empty()) result.failures.push_back(*coordinator.capture_complaint());
}

std::string describe_end(Rank rank, const Error& error) {
  return "rank " + std::to_string(rank.value) + " ended in " + error_code_name(error.code()) + ": " + error.what();
}

bool is_code_of_faults(const Error& error) {
  const auto allowed = {ErrorCode::kUnavailable, ErrorCode::kDeadlineExceeded, ErrorCode::kInternal,
                        ErrorCode::kInvalidArgument};
  return std::ranges::find(allowed, error.code()) != allowed.end();
}

bool names(const Error& error, Rank rank) {
  return std::string(error.what()).find("rank " + std::to_string(rank.value)) != std::string::npos;
}

void count(const FaultyNetwork& network, const VirtualTime& time, SimResult& result) {
  result.num_faults = network.num_faults();
  result.num_messages = network.num_messages();
  result.elapsed = time.elapsed();
}

}  // namespace ferry::sim
