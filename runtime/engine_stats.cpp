#include "runtime/engine_stats.h"

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

using TimePoint = Sequence::TimePoint;

// Bounds as vLLM has them (v1/metrics/loggers.py).
const std::vector<double> kStepTokens = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const std::vector<double> kCompletions = {1, 2, 5, 10, 20};
const std::vector<double> kPreemptions = {1, 2, 3, 4, 5, 10, 20};
const std::vector<double> kFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                         1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const std::vector<double> kTokenSeconds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                           0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const std::vector<double> kRequestSeconds = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                             30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};

/// With finer ones below the first one, where most values of a server that is not busy are.
std::vector<double> with_finer(const std::vector<double>& bounds) {
  std::vector<double> all;
  for (const double fine : {1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2}) {
    if (fine < bounds.front()) all.push_back(fine);
  }
  all.insert(all.end(), bounds.begin(), bounds.end());
  return all;
}

double seconds(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

}  // namespace

const std::vector<double>& vllm_token_seconds() { return kTokenSeconds; }
const std::vector<double>& vllm_request_seconds() { return kRequestSeconds; }

std::vector<double> token_bounds(int64_t most) {
  std::vector<double> bounds;
  for (int64_t power = 1; power <= most; power *= 10) {
    for (const int64_t bound : {power, 2 * power, 5 * power}) {
      if (bound <= most) bounds.push_back(static_cast<double>(bound));
    }
  }
  return bounds;
}

TouchCounter::TouchCounter(const ExpertLoad& load) {
  for (int64_t l = 0; l < load.num_layers(); ++l) seen_.insert(seen_.end(), load.layer(l).begin(), load.layer(l).end());
}

void TouchCounter::add_step(const ExpertLoad& load) {
  auto seen = seen_.begin();
  for (int64_t l = 0; l < load.num_layers(); ++l) {
    const std::span<const int64_t> now = load.layer(l);
    int64_t num_touched = 0;
    for (const int64_t rows : now) num_touched += std::exchange(*seen++, rows) != rows;
    count_.experts += num_touched;
    count_.layers += num_touched > 0;
  }
}

EngineStats::EngineStats(const SchedulerOptions& options)
    : prompt_lengths(token_bounds(options.max_context)),
      completion_lengths(prompt_lengths),
      longest_completions(prompt_lengths),
      max_tokens(prompt_lengths),
      computed_prompt_tokens(prompt_lengths),
      step_tokens(kStepTokens),
      num_completions(kCompletions),
      num_preemptions(kPreemptions),
      first_token_s(kFirstToken),
      between_tokens_s(with_finer(kTokenSeconds)),
      per_token_s(with_finer(kTokenSeconds)),
      total_s(with_finer(kRequestSeconds)),
      queue_s(with_finer(kRequestSeconds)),
      inference_s(with_finer(kRequestSeconds)),
      prefill_s(with_finer(kRequestSeconds)),
      decode_s(with_finer(kRequestSeconds)) {}

void EngineStats::add_step(const StepPlan& plan, TimePoint now) {
  int64_t num_tokens = plan.num_prefill_tokens;
  for (const StepEntry& entry : plan.entries) {
    Sequence& sequence = *entry.sequence;
    if (sequence.num_new == 0) continue;
    num_tokens += sequence.num_new;
    generation_tokens += sequence.num_new;
    if (sequence.last_output) {
      between_tokens_s.observe(seconds(*sequence.last_output, now));
    } else {
      prompt_tokens += sequence.num_prompt();
      cached_tokens += sequence.num_cached;
      first_token_s.observe(seconds(sequence.arrival, now));
    }
    sequence.last_output = now;
  }
  if (plan.num_rows > 0) step_tokens.observe(static_cast<double>(num_tokens));
}

void EngineStats::add_finished(const Sequence& sequence) {
  ++count_of(sequence.finish_reason);
  prompt_lengths.observe(static_cast<double>(sequence.num_prompt()));
  completion_lengths.observe(static_cast<double>(sequence.num_generated()));
  max_tokens.observe(sequence.request.sampling.max_tokens);
  num_preemptions.observe(static_cast<double>(sequence.num_preemptions));
  add_siblings(sequence);
  const TimePoint end = sequence.finished.value_or(sequence.arrival);
  total_s.observe(seconds(sequence.arrival, end));
  queue_s.observe(seconds(sequence.arrival, sequence.first_scheduled.value_or(end)));
  if (!sequence.first_token || !sequence.last_output) return;
  const double decode = seconds(*sequence.first_token, *sequence.last_output);
  computed_prompt_tokens.observe(static_cast<double>(sequence.num_prompt() - sequence.num_cached));
  prefill_s.observe(seconds(*sequence.first_scheduled, *sequence.first_token));
  inference_s.observe(seconds(*sequence.first_scheduled, *sequence.last_output));
  decode_s.observe(decode);
  if (sequence.num_generated() > 1) per_token_s.observe(decode / static_cast<double>(sequence.num_generated() - 1));
}

/// Of completions that were asked for together the last one tells of all.
void EngineStats::add_siblings(const Sequence& sequence) {
  const int64_t length = sequence.num_generated();
  Siblings* const siblings = sequence.request.siblings.get();
  if (siblings != nullptr) siblings->longest = std::max(siblings->longest, length);
  if (siblings != nullptr && --siblings->num_open > 0) return;
  num_completions.observe(siblings == nullptr ? 1 : static_cast<double>(siblings->num_all));
  longest_completions.observe(static_cast<double>(siblings == nullptr ? length : siblings->longest));
}

}  // namespace ferry
