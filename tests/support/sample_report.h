#pragma once

#include "runtime/server/metrics/engine_metrics.h"

namespace ferry::test {

/// An engine's report in which most counts differ from each other.
inline EngineReport sample_report() {
  SchedulerOptions options;
  options.max_context = 1000;
  EngineReport report{.load = {}, .stats = EngineStats(options), .model = {}};
  report.load.running_requests = 3;
  report.load.waiting_requests = 2;
  report.load.kv_blocks_total = 8;
  report.load.kv_blocks_used = 2;
  report.load.kv_block_tokens = 16;
  report.load.preemptions = 4;
  report.load.lost_slots = 8;
  report.load.accounts = 9;
  report.load.prefill_limit = 448;
  report.load.max_drafts = 2;
  report.load.drafts.add(2, 1);
  report.stats.prompt_tokens = 100;
  report.stats.cached_tokens = 30;
  report.load.prefix_cache.num_query_tokens = 110;
  report.load.prefix_cache.num_cached_tokens = 40;
  report.load.prefix_cache.misses[static_cast<std::size_t>(CacheMiss::kSalt)] = 5;
  report.stats.rejected = 6;
  report.stats.count_of(FinishReason::kAborted) = 1;
  report.stats.count_of(FinishReason::kDeadline) = 1;
  report.stats.transport.bytes_in = 77;
  report.stats.first_token_s.observe(0.07);
  report.workers.workers = {{.rank = 1, .state = WorkerState::kHealthy, .rows = 40, .home = {"node1", "10.0.0.5:4711"}},
                            {.rank = 2, .state = WorkerState::kMasked, .reason = "rank 2 left", .rows = 30, .is_lost = true}};
  report.workers.changes[static_cast<std::size_t>(WorkerState::kMasked)] = 1;
  report.workers.covered = {.by_workers = 5, .by_coordinator = 6};
  report.workers.expert_cost = {.fixed = 9, .per_row = 1};
  report.workers.kept_bytes = 7;
  report.archive = ArchiveStatus{.num_kept = 31, .num_bytes = 32, .num_left_out = 33};
  report.archive->drift[static_cast<std::size_t>(Phase::kDecode)] = {
      .median_ratio = 1.5, .p99_ratio = 2.5, .is_alarmed = true, .num_alarms = 2};
  return report;
}

}  // namespace ferry::test
