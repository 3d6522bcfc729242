#include "tests/support/served_answers.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace ferry::test {
namespace {

/// Where an engine's logits of the last step are, found out by one that is forgotten.
HostLogits& logits_of(Engine& engine) {
  Scheduler scheduler(without_cache(engine.scheduler_options()));
  Request request;
  request.prompt = {3};
  scheduler.add(std::move(request), {});
  HostLogits& logits = engine.compute(scheduler.plan({}));
  logits.fetch();
  scheduler.finish_all(FinishReason::kAborted, {});
  return logits;
}

}  // namespace

Server::Server(Engine& engine, const SchedulerOptions& limits)
    : engine_(engine), logits_(logits_of(engine)), scheduler_(limits) {}

std::map<std::string, Answer> Server::answer(const std::vector<Request>& requests) {
  for (const Request& request : requests) FERRY_CHECK(scheduler_.add(request, {}) != nullptr);
  std::map<std::string, Answer> answers;
  while (scheduler_.load().num_running + scheduler_.load().num_waiting > 0) step(answers);
  return answers;
}

void Server::step(std::map<std::string, Answer>& answers) {
  if (before_step) before_step();
  engine_.advance_prefix_file(scheduler_);
  const StepPlan& plan = scheduler_.plan({});
  if (plan.num_rows == 0) engine_.wait_for_prefix_file(scheduler_);
  if (!is_timed) scheduler_.check_cache();
  std::map<std::size_t, int64_t> num_saved;
  for (const StateSnapshot& saved : plan.snapshots) max_saved_ = std::max(max_saved_, ++num_saved[saved.entry]);
  if (plan.num_rows > 0) {
    const StepChoices choices = engine_.run_step(plan);
    if (!is_timed) keep_logits(plan, choices, answers);
    scheduler_.commit(plan, choices, {});
    if (!is_timed) scheduler_.check_cache();
    const auto has_first = [](const StepEntry& entry) {
      return entry.sequence->num_new > 0 && entry.sequence->num_new == entry.sequence->num_generated();
    };
    if (after_first_token && std::ranges::any_of(plan.entries, has_first)) after_first_token();
    engine_.draft(plan, scheduler_);
  }
  for (const std::unique_ptr<Sequence>& sequence : scheduler_.take_finished()) {
    Answer& answer = answers[sequence->request.id];
    answer.num_cached = sequence->num_cached;
    answer.tokens.assign(sequence->tokens.begin() + sequence->num_prompt(), sequence->tokens.end());
    answer.logits.resize(std::min(answer.logits.size(), answer.tokens.size()));
  }
}

void Server::keep_logits(const StepPlan& plan, const StepChoices& choices, std::map<std::string, Answer>& answers) {
  const ConstMatrixView values = logits_.all_values();
  int64_t row = 0;
  std::size_t sample = 0;
  for (const StepEntry& entry : plan.entries) {
    if (!entry.samples) continue;
    for (int32_t i = 0; i < choices.num_tokens[sample]; ++i) {
      const std::byte* bytes = values.row_bytes(row + i);
      answers[entry.sequence->request.id].logits.emplace_back(bytes, bytes + values.cols * dtype_bytes(values.dtype));
    }
    ++sample;
    row += entry.num_logits();
  }
}

SchedulerOptions without_cache(SchedulerOptions limits) {
  limits.prefix_cache.is_on = false;
  return limits;
}

}  // namespace ferry::test
