#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "profiler/report/findings/format.h"
#include "profiler/report/lost_time/waiting.h"
#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"
#include "runtime/actions/command_change.h"
#include "runtime/actions/proposals.h"
#include "runtime/actions/roofs.h"
#include "runtime/actions/schedule_replay.h"

// What the scheduler could do better with other limits: its own code, over the captured requests.

namespace ferry {
namespace {

constexpr double kScheduleDoubt = 0.25;
constexpr int64_t kDefaultBudget = 2112, kDefaultChunk = 2048, kBlockTokens = 16;

/// Between steps of a run that has requests: what the coordinator does beside steps, seconds.
double find_gap_s(const Timeline& timeline) {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < timeline.steps.size(); ++i)
    gaps.push_back(1e-9 * static_cast<double>(timeline.steps[i].begin_ns - timeline.steps[i - 1].end_ns));
  return median(gaps);
}

/// Median of what requests waited for their first token, those of which the capture saw that.
double measured_ttft_s(const Timeline& timeline) {
  std::vector<double> all;
  for (const RequestInfo& r : timeline.requests)
    if (r.first_token_ns && (r.arrival_ns || r.queued_ns))
      all.push_back(1e-9 * static_cast<double>(*r.first_token_ns - r.arrival_ns.value_or(*r.queued_ns)));
  return median(all);
}

/// What a prompt's row takes at least, seconds, where it only multiplies.
double least_prompt_row_s(const ReportInput& input) {
  double seconds = 0;
  for (const OperatorFacts& facts : input.capture.info.model.operators) {
    const Part part = zone_info(facts.zone).part;
    const double reached = reached_flops_per_s(input, facts);
    if (part == Part::kHead || part == Part::kSample || reached <= 0) continue;
    seconds += static_cast<double>(facts.num_layers * facts.rows_per_token) * facts.flop.per_row / reached;
  }
  return seconds;
}

/// Steps of sizes that the capture does not have, where a plan can be made of it.
StepClock::Plan plan_of(const CaptureReplay& replay) {
  if (!replay.costs) return {};
  const auto model = std::make_shared<PlanReplay>(replay);
  return [&replay, model](double rows, bool is_decode) {
    PlanCase c = replay.costs->captured;
    c.given = &replay.costs->placement;
    if (!is_decode) return model->prefill_seconds(c, std::llround(rows));
    return model->decode_seconds(c, std::llround(rows)) + replay.tokens_s(rows);
  };
}

class ScheduleProposer {
 public:
  ScheduleProposer(const CaptureReplay& replay, std::vector<Proposal>& proposals)
      : replay_(replay),
        proposals_(proposals),
        clock_(replay.steps, find_gap_s(replay.input.timeline), least_prompt_row_s(replay.input), plan_of(replay)),
        requests_(find_replayed_requests(replay.input)) {
    const CaptureInfo& info = replay.input.capture.info;
    options_.max_running =
        std::max<int64_t>(1, replay.setting_number("--max-seqs", std::max<int64_t>(1, info.max_running_requests)));
    options_.max_waiting = 1 << 20;
    options_.prefill_chunk = replay.setting_number("--prefill-chunk", kDefaultChunk);
    options_.token_budget = std::max(replay.setting_number("--token-budget", kDefaultBudget),
                                     options_.max_running + prefill_quantum(options_.prefill_chunk));
    options_.num_blocks = std::max<int64_t>(1, info.num_kv_blocks > 0 ? info.num_kv_blocks : 1 << 20);
    options_.num_swap_blocks = options_.num_blocks;
    options_.block_tokens = kBlockTokens;
    options_.max_context = 1 << 22;
    options_.vocab_size = 1;
  }

  void propose();

 private:
  /// The bound of a prompt's piece when nothing else runs.
  static int64_t piece(const SchedulerOptions& o) { return std::min(o.prefill_chunk, o.token_budget); }
  double prompt_s(int64_t num_prompt, const SchedulerOptions& options) const;
  void propose_pieces();
  bool propose_pieces_of_sections(const SchedulerOptions& changed, const std::string& option, const std::string& from,
                                  const std::string& to);
  void propose_slots();
  void propose_memory();
  void propose_stalls();
  Saving throughput_saving(const ScheduleResult& after) const {
    return {.before_s = base_->end_s,
            .after_s = after.end_s,
            .all_saved_s = base_->steps_s - after.steps_s,
            .self_error = self_error_,
            .noise = noise_,
            .doubt = kScheduleDoubt};
  }
  double captured_tokens_per_s() const;
  Proposal proposal(const char* finding, Finding::Severity severity, std::string text, Action action) const;

  const CaptureReplay& replay_;
  std::vector<Proposal>& proposals_;
  const StepClock clock_;
  const std::vector<ReplayedRequest> requests_;
  SchedulerOptions options_;
  std::optional<ScheduleResult> base_;
  double self_error_ = 0;  // of the time in steps
  double noise_ = 0;
};

Proposal ScheduleProposer::proposal(const char* finding, Finding::Severity severity, std::string text, Action action) const {
  action.command = changed_command(replay_.input.capture.info, action.option, action.to);
  return {.answers = {finding},
          .rank = -1,
          .own = {.severity = severity, .kind = finding, .text = std::move(text), .table = "phase"},
          .action = std::move(action)};
}

double ScheduleProposer::captured_tokens_per_s() const {
  const Timeline& timeline = replay_.input.timeline;
  double tokens = 0;
  for (const RequestInfo& r : timeline.requests) tokens += static_cast<double>(r.num_generated);
  const int64_t wall_ns = timeline.steps.back().end_ns - timeline.steps.front().begin_ns;
  return wall_ns > 0 ? tokens / (1e-9 * static_cast<double>(wall_ns)) : 0;
}

/// Seconds of a prompt's pieces, were it alone.
double ScheduleProposer::prompt_s(int64_t num_prompt, const SchedulerOptions& options) const {
  double sum = 0;
  for (int64_t done = 0; done < num_prompt;) {
    const int64_t rows = next_prefill_piece(num_prompt, done, options.prefill_chunk, options.token_budget);
    if (rows <= 0) break;
    sum += clock_.seconds(0, static_cast<double>(rows));
    done += rows;
  }
  return sum;
}

/// Of a run that times prompts of one size: tokens/s of those whose pieces would be fewer.
bool ScheduleProposer::propose_pieces_of_sections(const SchedulerOptions& changed, const std::string& option,
                                                  const std::string& from, const std::string& to) {
  const Timeline& timeline = replay_.input.timeline;
  Proposal best;
  bool found = false;
  for (const StepGroup& group : replay_.groups) {
    const int32_t section = timeline.steps[replay_.steps[group.steps.front()].index].section;
    if (group.is_decode || section < 0) continue;
    const int64_t size = timeline.sections[static_cast<std::size_t>(section)].size;
    if (size <= piece(options_)) continue;
    const double before = prompt_s(size, options_), after = prompt_s(size, changed);
    const double num_prompts = group.tokens / static_cast<double>(size);
    Action action{.kind = option == "--prefill-chunk" ? "prefill_chunk" : "token_budget",
                  .text = "compute more of a prompt at once",
                  .option = option,
                  .from = from,
                  .to = to,
                  .metric = group.metric,
                  .assumes = "rows beyond those that were captured take as long each"};
    const Saving saving{.before_s = group.seconds,
                        .after_s = group.seconds * after / before,
                        .all_saved_s = group.seconds * (1 - after / before),
                        .self_error = num_prompts * before / group.seconds - 1,
                        .noise = group.noise,
                        .doubt = kScheduleDoubt};
    if (!set_saving(action, group.tokens_per_s(), true, saving)) continue;
    if (found && action.saved_ms <= best.action.saved_ms) continue;
    best = proposal("small_pieces", Finding::Severity::kNotice,
                    format("Prompts of %lld tokens are computed in pieces of at most %lld: each piece reads all weights anew.",
                           whole(size), whole(piece(options_))),
                    std::move(action));
    found = true;
  }
  if (found) proposals_.push_back(std::move(best));
  return found;
}

/// Larger pieces of prompts: the smallest that brings nearly all there is to gain.
void ScheduleProposer::propose_pieces() {
  constexpr double kNearly = 0.95;
  constexpr int64_t kLargest = 4096;
  int64_t longest = 0;
  for (const ReplayedRequest& r : requests_) longest = std::max(longest, r.num_prompt);
  if (longest <= piece(options_)) return;
  const bool is_chunk = options_.prefill_chunk <= options_.token_budget - options_.max_running;
  const bool has_sections = !replay_.input.timeline.sections.empty();
  std::vector<SchedulerOptions> candidates;
  std::vector<std::optional<ScheduleResult>> results;
  std::vector<double> seconds;
  for (int64_t rows = 64; rows <= kLargest; rows *= 2) {
    SchedulerOptions o = options_;
    (is_chunk ? o.prefill_chunk : o.token_budget) = rows + (is_chunk ? 0 : o.max_running);
    if (piece(o) <= piece(options_) || (is_chunk && o.prefill_chunk > o.token_budget - o.max_running)) continue;
    results.push_back(has_sections ? std::nullopt : replay_schedule(requests_, o, clock_));
    seconds.push_back(results.back() ? results.back()->ttft_p50_s : has_sections ? prompt_s(longest, o) : base_->ttft_p50_s);
    candidates.push_back(std::move(o));
  }
  if (seconds.empty()) return;
  const double before = has_sections ? prompt_s(longest, options_) : base_->ttft_p50_s,
               least = *std::ranges::min_element(seconds);
  if (least >= before) return;
  const auto found = std::ranges::find_if(seconds, [&](double s) { return before - s >= kNearly * (before - least); });
  const auto at = static_cast<std::size_t>(found - seconds.begin());
  const SchedulerOptions& chosen = candidates[at];
  const std::string option = is_chunk ? "--prefill-chunk" : "--token-budget";
  const std::string from = std::to_string(is_chunk ? options_.prefill_chunk : options_.token_budget);
  const std::string to = std::to_string(is_chunk ? chosen.prefill_chunk : chosen.token_budget);
  if (propose_pieces_of_sections(chosen, option, from, to)) return;
  const std::optional<ScheduleResult>& after = results[at];
  if (!after || base_->ttft_p50_s <= 0) return;
  const double ttft = measured_ttft_s(replay_.input.timeline);
  Action action{.kind = is_chunk ? "prefill_chunk" : "token_budget",
                .text = "compute more of a prompt at once",
                .option = option,
                .from = from,
                .to = to,
                .metric = "TTFT p50 ms",
                .assumes = "clients ask as they did; the time between tokens of a text grows with the pieces beside it"};
  const Saving saving{.before_s = base_->ttft_p50_s,
                      .after_s = after->ttft_p50_s,
                      .all_saved_s = base_->steps_s - after->steps_s,
                      .self_error = ttft > 0 ? base_->ttft_p50_s / ttft - 1 : 0,
                      .noise = noise_,
                      .doubt = kScheduleDoubt};
  if (!set_saving(action, 1e3 * ttft, false, saving)) return;
  proposals_.push_back(proposal(
      "small_pieces", Finding::Severity::kNotice,
      format("Prompts of up to %lld tokens are computed in pieces of at most %lld.", whole(longest), whole(piece(options_))),
      std::move(action)));
}

void ScheduleProposer::propose_slots() {
  const IntervalSet waiting = find_waiting(replay_.input);
  if (total(waiting) == 0) return;
  const WaitReasons reasons = find_wait_reasons(replay_.input, waiting);
  if (reasons.slots < reasons.kv_blocks + reasons.steps) return;
  const std::vector<ReplayedRequest> repeated = repeat_clients(replay_.input.timeline, requests_);
  const std::vector<ReplayedRequest>& asked = repeated.empty() ? requests_ : repeated;
  const std::optional<ScheduleResult> before = repeated.empty() ? base_ : replay_schedule(asked, options_, clock_);
  if (!before) return;
  std::optional<ScheduleResult> best;
  SchedulerOptions chosen;
  for (int64_t factor = 2; factor <= 8; factor *= 2) {
    SchedulerOptions o = options_;
    o.max_running *= factor;
    o.token_budget = std::max(o.token_budget, o.max_running + prefill_quantum(o.prefill_chunk));
    const std::optional<ScheduleResult> after = replay_schedule(asked, o, clock_);
    constexpr double kFurther = 0.97;  // a step further has to bring something
    if (!after || (best && after->end_s > kFurther * best->end_s)) break;
    best = after, chosen = o;
  }
  if (!best) return;
  Saving saving = throughput_saving(*best);
  saving.before_s = before->end_s;
  saving.all_saved_s = base_->steps_s * (1 - best->steps_s / before->steps_s);
  Action action{.kind = "max_seqs",
                .text = "let more sequences run at once",
                .option = "--max-seqs",
                .from = std::to_string(options_.max_running),
                .to = std::to_string(chosen.max_running),
                .metric = "generated tokens/s",
                .assumes = "there is memory for their caches; clients ask as they did"};
  if (set_saving(action, captured_tokens_per_s(), true, saving))
    proposals_.push_back(proposal("starved", Finding::Severity::kNotice, "Requests wait for a slot.", std::move(action)));
}

void ScheduleProposer::propose_memory() {
  int64_t preemptions = 0;
  for (const RequestInfo& r : replay_.input.timeline.requests) preemptions += r.num_preemptions;
  const WaitReasons reasons = find_wait_reasons(replay_.input, find_waiting(replay_.input));
  if (preemptions == 0 && reasons.kv_blocks <= reasons.slots + reasons.steps) return;
  SchedulerOptions o = options_;
  o.num_blocks *= 2;
  o.num_swap_blocks = o.num_blocks;
  const std::optional<ScheduleResult> after = replay_schedule(requests_, o, clock_);
  const std::string memory = replay_.setting("--memory");
  const bool is_int8 = replay_.setting("--kv-cache-dtype", "bf16") == "i8";
  if (!after || (is_int8 && memory.empty())) return;
  Action action{
      .kind = "memory",
      .text = is_int8 ? "give the cache twice the memory" : "hold keys and values in 8 bits: twice as many tokens fit",
      .option = is_int8 ? "--memory" : "--kv-cache-dtype",
      .from = is_int8 ? memory : "bf16",
      .to = is_int8 ? std::to_string(2 * replay_.setting_number("--memory", 0)) + "B" : "int8",
      .metric = "generated tokens/s",
      .assumes = is_int8 ? "the host has it" : "results change a little; attention takes as long"};
  if (set_saving(action, captured_tokens_per_s(), true, throughput_saving(*after)))
    proposals_.push_back(proposal("starved", Finding::Severity::kNotice,
                                  format("The cache is full: %lld preemptions.", whole(preemptions)), std::move(action)));
}

/// Texts that stand still behind pieces of prompts: smaller ones, where that costs hardly anything.
void ScheduleProposer::propose_stalls() {
  constexpr double kStall = 5;      // times the median between two tokens
  constexpr double kShorter = 0.7;  // of the longest waits
  constexpr double kMostCost = 1.03;
  if (base_->gap_p50_s <= 0 || base_->gap_p99_s < kStall * base_->gap_p50_s) return;
  std::optional<ScheduleResult> best;
  SchedulerOptions chosen;
  for (int64_t rows = options_.prefill_chunk / 2 / 64 * 64; rows >= 64; rows = rows / 2 / 64 * 64) {
    SchedulerOptions o = options_;
    o.prefill_chunk = rows;
    o.token_budget = rows + o.max_running;
    const std::optional<ScheduleResult> after = replay_schedule(requests_, o, clock_);
    if (!after || after->end_s > kMostCost * base_->end_s) break;
    if (!best || after->gap_p99_s < best->gap_p99_s) best = after, chosen = o;
  }
  if (!best || best->gap_p99_s > kShorter * base_->gap_p99_s) return;
  Action action{.kind = "token_budget",
                .text = "compute less of a prompt beside texts that go on",
                .option = "--token-budget",
                .from = std::to_string(options_.token_budget),
                .to = std::to_string(chosen.token_budget),
                .metric = "time between tokens p99 ms",
                .assumes = "clients ask as they did"};
  const Saving saving{.before_s = base_->gap_p99_s,
                      .after_s = best->gap_p99_s,
                      .all_saved_s = std::max(1e-9, base_->steps_s - best->steps_s),
                      .self_error = self_error_,
                      .noise = noise_,
                      .doubt = kScheduleDoubt};
  if (set_saving(action, 1e3 * base_->gap_p99_s, false, saving))
    proposals_.push_back(proposal("long_mixed_steps", Finding::Severity::kNotice,
                                  format("Texts stand still while prompts are computed: the time between two tokens is %.1f ms "
                                         "(p99), %.0f times the median.",
                                         1e3 * base_->gap_p99_s, base_->gap_p99_s / base_->gap_p50_s),
                                  std::move(action)));
}

void ScheduleProposer::propose() {
  if (requests_.empty() || replay_.steps.empty()) return;
  base_ = replay_schedule(requests_, options_, clock_);
  if (!base_ || base_->end_s <= 0) return;
  self_error_ = base_->steps_s / replay_.steps_s() - 1;
  for (const StepGroup& group : replay_.groups) noise_ = std::max(noise_, group.noise / 2);
  propose_pieces();
  const bool is_bench = !replay_.input.timeline.sections.empty();  // whose requests are what it measures with
  if (is_bench) return;
  propose_slots();
  propose_memory();
  propose_stalls();
}

}  // namespace

void propose_schedule(const CaptureReplay& replay, std::vector<Proposal>& proposals) {
  ScheduleProposer(replay, proposals).propose();
}

}  // namespace ferry
