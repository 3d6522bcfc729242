#include "launch/draft_bench.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "profiler/span.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

using SteadyClock = std::chrono::steady_clock;

Request make_request(std::size_t number, const std::vector<TokenId>& prompt, int64_t max_tokens) {
  Request request;
  request.number = RequestNumber{number};
  request.prompt = prompt;
  request.sampling.max_tokens = static_cast<int32_t>(max_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

void check_same(const DraftRun& plain, const DraftRun& drafted) {
  const std::optional<TokenDifference> difference = first_difference(plain, drafted);
  if (!difference) return;
  throw Error(ErrorCode::kInternal, "bench: token " + std::to_string(difference->token) + " of sequence " +
                                        std::to_string(difference->sequence) + " is another one with drafts");
}

/// What became of several runs.
struct Runs {
  std::vector<double> tokens_per_s, prompt_seconds;
  int64_t num_steps = 0, touched_experts = 0;
  DraftCount drafts;

  void add(const DraftRun& run) {
    tokens_per_s.push_back(run.tokens_per_s());
    prompt_seconds.push_back(run.prompt_seconds);
    num_steps += run.num_steps;
    touched_experts += run.touched_experts;
    drafts += run.drafts;
  }
  double touched_per_layer(int64_t num_layers) const {
    return num_layers > 0 ? static_cast<double>(touched_experts) / static_cast<double>(num_steps * num_layers) : 0;
  }
};

}  // namespace

int64_t DraftBench::max_sequences(int64_t tokens_per_sequence) const {
  const SchedulerOptions& limits = engine_.scheduler_options();
  const int64_t blocks = (tokens_per_sequence + limits.block_tokens - 1) / limits.block_tokens;
  return std::min(limits.max_running, limits.num_blocks / blocks);
}

/// Over the trunk's layers, the experts that were given rows since the last call.
int64_t DraftBench::touched_experts() {
  const ExpertLoad& load = engine_.dispatcher().expert_load();
  int64_t num_touched = 0;
  std::size_t i = 0;
  for (int64_t l = 0; l < engine_.config().num_layers(); ++l) {
    for (const int64_t rows : load.layer(l)) {
      if (i == expert_rows_.size()) expert_rows_.push_back(0);
      num_touched += rows > expert_rows_[i] ? 1 : 0;
      expert_rows_[i++] = rows;
    }
  }
  return num_touched;
}

struct DraftBench::Step {
  double seconds = 0;
  const StepPlan* plan = nullptr;
};

DraftBench::Step DraftBench::step(Scheduler& scheduler) {
  const uint64_t begin = now_ticks();
  const auto start = SteadyClock::now();
  const StepPlan& plan = scheduler.plan(start);
  FERRY_CHECK_GE(plan.num_rows, 1);
  const uint64_t run_begin = now_ticks();
  const StepChoices choices = engine_.run_step(plan);
  const uint64_t run_end = now_ticks();
  scheduler.commit(plan, choices, SteadyClock::now());
  trace_.computed(plan, run_begin, run_end);
  engine_.draft(plan, scheduler);
  const std::chrono::duration<double> duration = SteadyClock::now() - start;
  const Phase phase = plan.num_prefill_tokens > 0 ? Phase::kPrefill : Phase::kDecode;
  record_span(Zone::kStep, begin, now_ticks(), static_cast<uint32_t>(plan.num_rows),
              pack_plan(phase, static_cast<uint32_t>(plan.entries.size())));
  engine_.trace().work(true);
  return {.seconds = duration.count(), .plan = &plan};
}

DraftRun DraftBench::run(const std::vector<std::vector<TokenId>>& prompts, int64_t decode_tokens, Drafting drafting) {
  engine_.set_drafting(drafting);
  Scheduler scheduler(engine_.scheduler_options());
  std::vector<Sequence*> sequences;
  const int64_t max_tokens = 2 * decode_tokens + Speculation::kMaxDrafts + 1;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    sequences.push_back(scheduler.add(make_request(i, prompts[i], max_tokens), SteadyClock::now()));
    FERRY_CHECK(sequences.back() != nullptr);
    trace_.queued(*sequences.back(), sequences.back()->arrival);
  }
  const int64_t enough = decode_tokens * std::ssize(prompts);
  DraftRun run;
  for (bool has_enough = false; !has_enough;) {
    const Step step = this->step(scheduler);
    const int64_t touched = touched_experts();
    if (step.plan->num_prefill_tokens > 0) {
      run.prompt_seconds += step.seconds;
      continue;
    }
    run.seconds += step.seconds;
    run.touched_experts += touched;
    ++run.num_steps;
    for (const StepEntry& entry : step.plan->entries) {
      run.num_tokens += entry.sequence->num_new;
      run.drafts.add(entry.num_drafts, entry.sequence->num_replayed);
      has_enough = has_enough || entry.sequence->num_generated() >= 2 * decode_tokens;
    }
    has_enough = has_enough || run.num_tokens >= enough;
  }
  for (const Sequence* sequence : sequences)
    run.tokens.emplace_back(sequence->tokens.begin() + sequence->num_prompt(), sequence->tokens.end());
  scheduler.finish_all(FinishReason::kAborted, SteadyClock::now());
  for (const std::unique_ptr<Sequence>& sequence : scheduler.take_finished()) trace_.finished(*sequence);
  engine_.set_drafting(Drafting::kOn);
  return run;
}

DraftGain measure_drafts(DraftBench& bench, const std::vector<std::vector<TokenId>>& prompts, int64_t decode_tokens,
                         int64_t repetitions, int64_t num_expert_layers) {
  const DraftRun expected = bench.run(prompts, decode_tokens, Drafting::kOff);
  check_same(expected, bench.run(prompts, decode_tokens, Drafting::kOn));
  Runs plain, drafted;
  std::vector<double> gains;
  for (int64_t r = 0; r < repetitions; ++r) {
    for (const Drafting drafting : {Drafting::kOff, Drafting::kOn}) {
      const DraftRun run = bench.run(prompts, decode_tokens, drafting);
      check_same(expected, run);
      (drafting == Drafting::kOn ? drafted : plain).add(run);
    }
    gains.push_back(drafted.tokens_per_s.back() / plain.tokens_per_s.back());
  }
  DraftGain gain{.plain_tokens_per_s = summarise(plain.tokens_per_s),
                 .tokens_per_s = summarise(drafted.tokens_per_s),
                 .gain = summarise(gains),
                 .prompt_gain = summarise(plain.prompt_seconds).median / summarise(drafted.prompt_seconds).median,
                 .plain_touched_experts = plain.touched_per_layer(num_expert_layers),
                 .touched_experts = drafted.touched_per_layer(num_expert_layers),
                 .tokens_per_step = drafted.drafts.tokens_per_step(),
                 .drafts = drafted.drafts};
  gain.gain.median = gain.tokens_per_s.median / gain.plain_tokens_per_s.median;
  return gain;
}

std::optional<TokenDifference> first_difference(const DraftRun& x, const DraftRun& y) {
  FERRY_CHECK_EQ(x.tokens.size(), y.tokens.size());
  for (std::size_t s = 0; s < x.tokens.size(); ++s) {
    const std::size_t both = std::min(x.tokens[s].size(), y.tokens[s].size());
    for (std::size_t i = 0; i < both; ++i)
      if (x.tokens[s][i] != y.tokens[s][i]) return TokenDifference{static_cast<int64_t>(s), static_cast<int64_t>(i)};
  }
  return std::nullopt;
}

}  // namespace ferry
