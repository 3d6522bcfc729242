#include "runtime/server/metrics/engine_metrics.h"

#include <string>

#include "profiler/recent_activity.h"
#include "runtime/server/metrics/metrics_text.h"
#include "runtime/version.h"

namespace ferry {
namespace {

using Report = EngineReport;

struct Value {
  const char* name;
  MetricKind kind;
  double (*of)(const Report&);
  const char* help;
};

struct Distribution {
  const char* name;
  Histogram EngineStats::*histogram;
  const char* help;
  const std::vector<double>& (*bounds)() = nullptr;  // null: the histogram's own
};

template <class Number>
double real(Number number) {
  return static_cast<double>(number);
}

int64_t sum(const std::array<int64_t, Speculation::kMaxDrafts>& counts) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  return total;
}

constexpr MetricKind kCounter = MetricKind::kCounter, kGauge = MetricKind::kGauge;

/// Metrics of one sample.
constexpr Value kValues[] = {
    {"vllm:num_requests_running", kGauge, [](const Report& r) { return real(r.load.running_requests); },
     "Requests that are being computed."},
    {"vllm:num_requests_waiting", kGauge, [](const Report& r) { return real(r.load.waiting_requests); },
     "Requests that wait to be computed, preempted ones included."},
    {"vllm:kv_cache_usage_perc", kGauge,
     [](const Report& r) {
       return r.load.kv_blocks_total == 0 ? 0 : real(r.load.kv_blocks_used) / real(r.load.kv_blocks_total);
     },
     "Blocks of the KV cache that are in use; 1 is all of them."},
    {"vllm:prefix_cache_queries_total", kCounter, [](const Report& r) { return real(r.load.prefix_cache.num_query_tokens); },
     "Tokens of prompts that the prefix cache was asked for."},
    {"vllm:prefix_cache_hits_total", kCounter, [](const Report& r) { return real(r.load.prefix_cache.num_cached_tokens); },
     "Tokens of prompts that the prefix cache had."},
    {"vllm:num_preemptions_total", kCounter, [](const Report& r) { return real(r.load.preemptions); },
     "Times that a request gave way to an older one."},
    {"vllm:prompt_tokens_total", kCounter, [](const Report& r) { return real(r.stats.prompt_tokens); },
     "Tokens of prompts, cached ones included."},
    {"vllm:generation_tokens_total", kCounter, [](const Report& r) { return real(r.stats.generation_tokens); },
     "Tokens of completions."},
    {"vllm:prompt_tokens_cached_total", kCounter, [](const Report& r) { return real(r.stats.cached_tokens); },
     "Tokens of prompts that were not computed, since they were cached."},
    {"vllm:spec_decode_num_drafts_total", kCounter, [](const Report& r) { return real(r.load.drafts.tried[0]); },
     "Drafts that were tried, of one or more tokens each."},
    {"vllm:spec_decode_num_draft_tokens_total", kCounter, [](const Report& r) { return real(sum(r.load.drafts.tried)); },
     "Tokens of drafts that were tried."},
    {"vllm:spec_decode_num_accepted_tokens_total", kCounter, [](const Report& r) { return real(sum(r.load.drafts.right)); },
     "Tokens of drafts that were right."},
    {"ferry:steps_total", kCounter, [](const Report& r) { return real(r.load.steps); }, "Steps that the engine has computed."},
    {"ferry:step_seconds_total", kCounter, [](const Report& r) { return r.load.draft_time.steps; },
     "Seconds that the steps took, drafting included."},
    {"ferry:draft_seconds_total", kCounter, [](const Report& r) { return r.load.draft_time.drafting; },
     "Of the steps' seconds, those that drafting took."},
    {"ferry:draft_wasted_seconds_total", kCounter, [](const Report& r) { return r.load.draft_time.wasted; },
     "Of the steps' seconds, those for rows of drafts that were wrong."},
    {"ferry:decode_steps_total", kCounter, [](const Report& r) { return real(r.load.drafts.sequence_steps); },
     "Steps of sequences behind their prompts: each sequence of a step counts one."},
    {"ferry:decode_tokens_total", kCounter, [](const Report& r) { return real(r.load.drafts.tokens); },
     "Tokens that these steps gave; by ferry:decode_steps_total, what drafts multiply the speed by."},
    {"ferry:computed_prompt_tokens_total", kCounter, [](const Report& r) { return real(r.load.prompt_tokens); },
     "Tokens of prompts that steps have computed, anew after a preemption included."},
    {"ferry:requests_preempted", kGauge, [](const Report& r) { return real(r.load.preempted_requests); },
     "Requests that gave way and wait to go on."},
    {"ferry:requests_lost_slot_total", kCounter, [](const Report& r) { return real(r.load.lost_slots); },
     "Times that a request gave its slot to one of a better priority or of an account with fewer slots, and began anew."},
    {"ferry:fair_accounts", kGauge, [](const Report& r) { return real(r.load.accounts); },
     "Keys or users that have open requests, where they take turns."},
    {"ferry:prefill_rows_limit", kGauge, [](const Report& r) { return real(r.load.prefill_limit); },
     "Rows of prompts that a step may have while texts go on, so that it keeps its time; 0: no bound."},
    {"ferry:swap_blocks_used", kGauge, [](const Report& r) { return real(r.stats.used_swap_blocks); },
     "Blocks of the swap space that hold what preempted requests have computed."},
    {"ferry:prefix_cache_units", kGauge, [](const Report& r) { return real(r.load.prefix_cache.num_units); },
     "Pieces of prompts whose keys and values are cached."},
    {"ferry:prefix_cache_snapshots", kGauge, [](const Report& r) { return real(r.load.prefix_cache.num_snapshots); },
     "Recurrent states that prompts may go on from."},
    {"ferry:prefix_cache_snapshot_bytes", kGauge, [](const Report& r) { return real(r.load.prefix_cache.snapshot_bytes); },
     "Bytes of these states."},
    {"ferry:prefix_cache_saved_snapshots_total", kCounter,
     [](const Report& r) { return real(r.load.prefix_cache.num_saved_snapshots); }, "States that were saved."},
    {"ferry:prefix_cache_evicted_snapshots_total", kCounter,
     [](const Report& r) { return real(r.load.prefix_cache.num_evicted_snapshots); }, "States that made room for others."},
    {"ferry:prefix_cache_evicted_units_total", kCounter,
     [](const Report& r) { return real(r.load.prefix_cache.num_evicted_units); },
     "Pieces of prompts that gave their blocks to sequences or to others."},
    {"ferry:prefix_cache_file_capacity_bytes", kGauge,
     [](const Report& r) { return real(r.load.prefix_cache.file_capacity_bytes); },
     "Bytes of the file behind the prefix cache; 0: there is none."},
    {"ferry:prefix_cache_file_bytes", kGauge, [](const Report& r) { return real(r.load.prefix_cache.file_bytes); },
     "Bytes of it that hold something."},
    {"ferry:prefix_cache_file_hits_total", kCounter, [](const Report& r) { return real(r.load.prefix_cache.num_file_hits); },
     "Requests that had less to compute because of it."},
    {"ferry:prefix_cache_file_hit_tokens_total", kCounter,
     [](const Report& r) { return real(r.load.prefix_cache.num_file_tokens); },
     "Tokens of their prompts that memory did not have and the file had."},
    {"ferry:prefix_cache_file_read_bytes_total", kCounter,
     [](const Report& r) { return real(r.load.prefix_cache.file_read_bytes); }, "Bytes that were read of it."},
    {"ferry:prefix_cache_file_written_bytes_total", kCounter,
     [](const Report& r) { return real(r.load.prefix_cache.file_written_bytes); }, "Bytes that were written to it."},
    {"ferry:expert_balancedness", kGauge, [](const Report& r) { return r.load.balancedness; },
     "Mean by maximum over ranks of the rows that their experts were given, since the start; 1 is even."},
    {"ferry:touched_experts_total", kCounter, [](const Report& r) { return real(r.stats.touched.experts); },
     "Experts that had a row, summed over layers and steps: what is read of their weights."},
    {"ferry:expert_layers_total", kCounter, [](const Report& r) { return real(r.stats.touched.layers); },
     "Layers with experts that steps have computed."},
    {"ferry:exposed_wait_seconds_total", kCounter, [](const Report& r) { return r.stats.transport.wait_s; },
     "Seconds that the coordinator stood still for other ranks' experts."},
    {"ferry:exposed_transport_seconds_total", kCounter, [](const Report& r) { return r.stats.transport.transport_s; },
     "Of these, seconds in which no other rank was computing what was waited for."},
};

constexpr Distribution kDistributions[] = {
    {"vllm:request_prompt_tokens", &EngineStats::prompt_lengths, "Tokens of a request's prompt."},
    {"vllm:request_generation_tokens", &EngineStats::completion_lengths, "Tokens of a request's completion."},
    {"vllm:request_max_num_generation_tokens", &EngineStats::longest_completions,
     "Tokens of the longest of the completions that were asked for together."},
    {"vllm:request_params_max_tokens", &EngineStats::max_tokens, "max_tokens of a request, clipped to the context."},
    {"vllm:request_prefill_kv_computed_tokens", &EngineStats::computed_prompt_tokens,
     "Tokens of a request's prompt that were computed for it."},
    {"vllm:iteration_tokens_total", &EngineStats::step_tokens, "Tokens of a step, of prompts and of completions."},
    {"vllm:request_params_n", &EngineStats::num_completions, "Completions that were asked for together."},
    {"vllm:request_num_preemptions", &EngineStats::num_preemptions, "Times that a request gave way to an older one."},
    {"vllm:time_to_first_token_seconds", &EngineStats::first_token_s, "Seconds from a request's arrival to its first token."},
    {"vllm:inter_token_latency_seconds", &EngineStats::between_tokens_s,
     "Seconds between one step that gave a request tokens and the next.", vllm_token_seconds},
    {"vllm:request_time_per_output_token_seconds", &EngineStats::per_token_s,
     "Seconds for each token of a request but the first.", vllm_token_seconds},
    {"vllm:e2e_request_latency_seconds", &EngineStats::total_s, "Seconds from a request's arrival to its end.",
     vllm_request_seconds},
    {"vllm:request_queue_time_seconds", &EngineStats::queue_s, "Seconds from a request's arrival to its admission.",
     vllm_request_seconds},
    {"vllm:request_inference_time_seconds", &EngineStats::inference_s, "Seconds from a request's admission to its last token.",
     vllm_request_seconds},
    {"vllm:request_prefill_time_seconds", &EngineStats::prefill_s, "Seconds from a request's admission to its first token.",
     vllm_request_seconds},
    {"vllm:request_decode_time_seconds", &EngineStats::decode_s, "Seconds from a request's first token to its last.",
     vllm_request_seconds},
};

void write_requests(const Report& report, MetricsText& text) {
  text.begin("vllm:num_requests_waiting_by_reason", kGauge, "Requests that wait, by what for.");
  text.add(report.load.waiting_requests, {{"reason", "capacity"}});
  text.add(0, {{"reason", "deferred"}});
  text.begin("vllm:request_success_total", kCounter, "Requests that have ended, by how.");
  const auto ended = [&](FinishReason reason) { return real(report.stats.count_of(reason)); };
  text.add(ended(FinishReason::kStop), {{"finished_reason", "stop"}});
  text.add(ended(FinishReason::kLength), {{"finished_reason", "length"}});
  text.add(ended(FinishReason::kAborted) + ended(FinishReason::kDeadline), {{"finished_reason", "abort"}});
  text.add(ended(FinishReason::kError), {{"finished_reason", "error"}});
  text.add(0, {{"finished_reason", "repetition"}});
}

void write_sources(const Report& report, MetricsText& text) {
  const EngineStats& stats = report.stats;
  text.begin("vllm:prompt_tokens_by_source_total", kCounter, "Tokens of prompts, by where their keys and values came from.");
  text.add(real(stats.prompt_tokens - stats.cached_tokens), {{"source", "local_compute"}});
  text.add(real(stats.cached_tokens), {{"source", "local_cache_hit"}});
  text.add(0, {{"source", "external_kv_transfer"}});
  text.begin("vllm:prompt_tokens_cached_by_source_total", kCounter, "Cached tokens of prompts, by where they were.");
  text.add(real(stats.cached_tokens), {{"source", "device"}});
  for (const char* source : {"host", "disk", "p2p", "external_unspecified"}) text.add(0, {{"source", source}});
}

/// Why requests began no later in their prompts.
void write_misses(const Report& report, MetricsText& text) {
  text.begin("ferry:prefix_cache_requests_total", kCounter, "Requests, by why the prefix cache had no more of their prompts.");
  for (int miss = 0; miss < kNumCacheMisses; ++miss) {
    text.add(real(report.load.prefix_cache.misses[static_cast<std::size_t>(miss)]),
             {{"miss_reason", cache_miss_name(static_cast<CacheMiss>(miss))}});
  }
}

/// What the file behind the prefix cache lost, or never got.
void write_file_drops(const Report& report, MetricsText& text) {
  text.begin("ferry:prefix_cache_file_dropped_records_total", kCounter,
             "States, and keys and values of pieces of prompts, that the prefix cache's file gave up or did not get.");
  for (int why = 0; why < kNumFileDrops; ++why) {
    text.add(real(report.load.prefix_cache.file_drops[static_cast<std::size_t>(why)]),
             {{"reason", file_drop_name(static_cast<FileDrop>(why))}});
  }
}

void write_drafts(const Report& report, MetricsText& text) {
  text.begin("vllm:spec_decode_num_accepted_tokens_per_pos_total", kCounter, "Tokens of drafts that were right, by place.");
  for (int32_t i = 0; i < report.load.max_drafts; ++i)
    text.add(real(report.load.drafts.right[static_cast<std::size_t>(i)]), {{"position", std::to_string(i)}});
}

void write_transport(const Report& report, MetricsText& text) {
  text.begin("ferry:transport_bytes_total", kCounter, "Bytes of rows between the coordinator and other ranks.");
  text.add(real(report.stats.transport.bytes_out), {{"direction", "out"}});
  text.add(real(report.stats.transport.bytes_in), {{"direction", "in"}});
}

/// Who holds experts, and what became of rows that they did not answer.
void write_workers(const Report& report, MetricsText& text) {
  const WorkerReport& workers = report.workers;
  text.begin("ferry:workers", kGauge, "Expert workers, by how they stand; suspect: late, masked: lost.");
  for (int state = 1; state < kNumWorkerStates; ++state) {
    const auto number = static_cast<WorkerState>(state);
    text.add(real(workers.count(number)), {{"state", worker_state_name(number)}});
  }
  text.begin("ferry:worker_info", kGauge, "1 for each expert worker, one that has gone included until its rank is another's.");
  for (const WorkerSight& worker : workers.workers) {
    if (worker.state == WorkerState::kVacant) continue;
    text.add(1, {{"rank", std::to_string(worker.rank)},
                 {"host", worker.home.host},
                 {"address", worker.home.address},
                 {"state", worker_state_name(worker.state)},
                 {"lost", worker.is_lost ? "yes" : "no"}});
  }
  text.begin("ferry:worker_changes_total", kCounter, "Times that a worker came to stand so, its start included.");
  for (int state = 1; state < kNumWorkerStates; ++state) {
    text.add(real(workers.changes[static_cast<std::size_t>(state)]),
             {{"state", worker_state_name(static_cast<WorkerState>(state))}});
  }
  text.begin("ferry:covered_rows_total", kCounter,
             "Rows that a worker answered in another one's place, or that the coordinator computed.");
  text.add(real(workers.covered.by_workers), {{"by", "worker"}});
  text.add(real(workers.covered.by_coordinator), {{"by", "coordinator"}});
  text.begin("ferry:worker_answers_total", kCounter,
             "Answers of workers with rows, by whether they were computed together with another coordinator's.");
  text.add(real(workers.answers.all - workers.answers.merged), {{"merged", "no"}});
  text.add(real(workers.answers.merged), {{"merged", "yes"}});
  text.begin("ferry:kept_expert_bytes", kGauge,
             "Bytes of experts that the coordinator holds, since no worker answers for them.");
  text.add(real(workers.kept_bytes));
  text.begin("ferry:expert_fixed_cost_rows", kGauge,
             "Rows that take a worker as long as reading an expert does, as learnt: by it experts are given out.");
  text.add(workers.expert_cost.fixed);
}

void write_spans(const Report& report, MetricsText& text) {
  if (!report.spans) return;
  text.begin("ferry:otlp_spans_sent_total", kCounter, "Spans of requests that the collector took.");
  text.add(real(report.spans->sent));
  text.begin("ferry:otlp_spans_dropped_total", kCounter, "Spans of requests that were dropped, by why.");
  text.add(real(report.spans->dropped_full), {{"reason", "queue_full"}});
  text.add(real(report.spans->dropped_unsent), {{"reason", "not_taken"}});
}

void write_archive(const Report& report, MetricsText& text) {
  if (!report.archive) return;
  text.begin("ferry:kept_steps", kGauge, "Steps in the archive.");
  text.add(real(report.archive->num_kept));
  text.begin("ferry:kept_step_bytes", kGauge, "Bytes of these steps.");
  text.add(real(report.archive->num_bytes));
  text.begin("ferry:kept_steps_left_out_total", kCounter, "Steps that could not be added to the archive.");
  text.add(real(report.archive->num_left_out));
  const auto for_phases = [&](auto&& add) {
    for (int p = 0; p < kNumPhases; ++p)
      add(report.archive->drift[static_cast<std::size_t>(p)], phase_name(static_cast<Phase>(p)));
  };
  text.begin("ferry:step_drift_ratio", kGauge,
             "Length of steps of the last ten minutes by that of the same kinds in the day before; 0: too few to tell.");
  for_phases([&](const PhaseDrift& drift, const char* phase) {
    text.add(drift.median_ratio, {{"phase", phase}, {"quantile", "0.5"}});
    text.add(drift.p99_ratio, {{"phase", phase}, {"quantile", "0.99"}});
  });
  text.begin("ferry:step_drift_alarm", kGauge, "Whether steps take longer than in the day before.");
  for_phases([&](const PhaseDrift& drift, const char* phase) { text.add(drift.is_alarmed ? 1 : 0, {{"phase", phase}}); });
  text.begin("ferry:step_drift_alarms_total", kCounter, "Times that they began to.");
  for_phases([&](const PhaseDrift& drift, const char* phase) { text.add(real(drift.num_alarms), {{"phase", phase}}); });
}

void write_facts(const Report& report, MetricsText& text) {
  const ModelInfo& model = report.model;
  text.begin("vllm:cache_config_info", kGauge, "How the KV cache is laid out, as labels.");
  text.add(1, {{"block_size", std::to_string(report.load.kv_block_tokens)},
               {"cache_dtype", model.kv_cache_name()},
               {"enable_prefix_caching", report.load.has_prefix_cache ? "True" : "False"},
               {"num_gpu_blocks", std::to_string(report.load.kv_blocks_total)}});
  text.begin("ferry:build_info", kGauge, "What runs, as labels.");
  text.add(1, {{"version", version_number()},
               {"architecture", model.architecture},
               {"dtype", dtype_name(model.dtype)},
               {"transport", model.transport},
               {"expert_workers", std::to_string(model.num_expert_workers)}});
}

}  // namespace

void write_engine_metrics(const EngineReport& report, MetricsText& text) {
  for (const Value& value : kValues) {
    text.begin(value.name, value.kind, value.help);
    text.add(value.of(report));
  }
  write_requests(report, text);
  write_sources(report, text);
  write_misses(report, text);
  write_file_drops(report, text);
  write_drafts(report, text);
  write_transport(report, text);
  write_workers(report, text);
  write_spans(report, text);
  write_archive(report, text);
  write_facts(report, text);
  for (const Distribution& distribution : kDistributions) {
    text.begin(distribution.name, MetricKind::kHistogram, distribution.help);
    const Histogram& histogram = report.stats.*distribution.histogram;
    text.add(distribution.bounds == nullptr ? histogram : histogram.merged(distribution.bounds()));
  }
}

}  // namespace ferry
