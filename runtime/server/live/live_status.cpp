#include "runtime/server/live/live_status.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "profiler/recent_activity.h"
#include "runtime/server/metrics/engine_metrics.h"
#include "runtime/version.h"

namespace ferry {
namespace {

/// The coordinator, and its workers that have not gone.
int32_t num_ranks(const WorkerReport& workers) {
  const int64_t num_away = workers.count(WorkerState::kGone) + workers.count(WorkerState::kVacant);
  return static_cast<int32_t>(1 + std::ssize(workers.workers) - num_away);
}

LiveStatus::Server server_of(const ModelInfo& model, const WorkerReport& workers, ServerFacts facts) {
  return {.version = version_number(),
          .model = model.name,
          .architecture = model.architecture,
          .dtype = dtype_name(model.dtype),
          .transport = model.transport,
          .ranks = num_ranks(workers),
          .layers = model.num_layers,
          .context_length = model.context_length,
          .time = facts.time,
          .uptime_s = facts.uptime_s,
          .complaint = std::move(facts.complaint)};
}

LiveStatus::Requests requests_of(const EngineReport& report, const std::vector<OpenRequestSight>& oldest) {
  const EngineLoad& load = report.load;
  LiveStatus::Requests requests{.running = load.running_requests,
                                .waiting = load.waiting_requests,
                                .max_running = load.max_running_requests,
                                .max_waiting = load.max_waiting_requests,
                                .by_state = {},
                                .finished = {},
                                .rejected = report.stats.rejected,
                                .preemptions = load.preemptions,
                                .oldest = {}};
  for (int state = 0; state < kNumRequestStates; ++state) {
    const auto number = static_cast<RequestState>(state);
    if (number != RequestState::kFinished)
      requests.by_state[request_state_name(number)] = load.requests[static_cast<std::size_t>(state)];
  }
  for (std::size_t reason = 1; reason < kNumFinishReasons; ++reason) {
    const auto number = static_cast<FinishReason>(reason);
    requests.finished[finish_reason_name(number)] = report.stats.count_of(number);
  }
  for (const OpenRequestSight& sight : oldest) {
    requests.oldest.push_back({.number = sight.number,
                               .state = request_state_name(sight.state),
                               .age_s = sight.age_s,
                               .prompt_tokens = sight.prompt_tokens,
                               .cached_tokens = sight.cached_tokens,
                               .computed_tokens = sight.computed_tokens,
                               .generated_tokens = sight.generated_tokens});
  }
  return requests;
}

LiveStatus::Steps steps_of(const EngineLoad& load) {
  const auto sum = [](const auto& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); };
  return {.count = load.steps,
          .seconds = load.draft_time.steps,
          .drafting_seconds = load.draft_time.drafting,
          .wasted_seconds = load.draft_time.wasted,
          .max_drafts = load.max_drafts,
          .drafts_tried = sum(load.drafts.tried),
          .drafts_right = sum(load.drafts.right),
          .sequence_steps = load.drafts.sequence_steps,
          .sequence_tokens = load.drafts.tokens};
}

LiveStatus::Recent recent_of(const RecentActivity& activity) {
  LiveStatus::Recent recent{.window_s = activity.window_s,
                            .phases = {},
                            .draft_s = activity.draft_s,
                            .core_wait_s = activity.core_wait_s,
                            .not_running_s = activity.not_running_s};
  for (int phase = 0; phase < kNumPhases; ++phase) {
    const RecentActivity::Steps& steps = activity.by_phase[static_cast<std::size_t>(phase)];
    recent.phases.push_back({.name = phase_name(static_cast<Phase>(phase)),
                             .steps = steps.steps,
                             .rows = steps.rows,
                             .sequences = steps.sequences,
                             .seconds = steps.seconds});
  }
  return recent;
}

/// Lists every worker that there is or was, those that had no rows recently included.
std::vector<LiveStatus::Rank> ranks_of(const WorkerReport& workers, const RecentActivity& activity) {
  std::vector<LiveStatus::Rank> ranks;
  for (const WorkerSight& worker : workers.workers) {
    if (worker.state == WorkerState::kVacant) continue;
    LiveStatus::Rank& rank = ranks.emplace_back(LiveStatus::Rank{.rank = worker.rank,
                                                                 .host = worker.home.host,
                                                                 .address = worker.home.address,
                                                                 .state = worker_state_name(worker.state),
                                                                 .lost = worker.is_lost,
                                                                 .reason = worker.reason,
                                                                 .changed_s = worker.changed_s});
    const auto peer = std::ranges::find(activity.peers, worker.rank, &RecentActivity::Peer::rank);
    if (peer == activity.peers.end()) continue;
    rank.exchanges = peer->exchanges;
    rank.rows = peer->rows;
    rank.bytes_out = peer->bytes_out;
    rank.bytes_in = peer->bytes_in;
    rank.round_trip_s = peer->round_trip_s;
    rank.wait_s = peer->wait_s;
  }
  return ranks;
}

LiveStatus::Workers workers_of(const WorkerReport& report) {
  LiveStatus::Workers workers{.by_state = {},
                              .missing = {},
                              .covered_by_workers = report.covered.by_workers,
                              .covered_by_coordinator = report.covered.by_coordinator,
                              .kept_bytes = report.kept_bytes};
  for (const WorkerSight& worker : report.workers) ++workers.by_state[worker_state_name(worker.state)];
  for (const WorkerSight& worker : report.missing())
    workers.missing.push_back({.rank = worker.rank, .state = worker_state_name(worker.state), .reason = worker.reason});
  return workers;
}

LiveStatus::Cache cache_of(const EngineReport& report) {
  const PrefixCacheLoad& prefixes = report.load.prefix_cache;
  LiveStatus::Cache cache{.blocks = report.load.kv_blocks_total,
                          .used_blocks = report.load.kv_blocks_used,
                          .block_tokens = report.load.kv_block_tokens,
                          .swap_blocks = report.stats.used_swap_blocks,
                          .has_prefix_cache = report.load.has_prefix_cache,
                          .idle_blocks = prefixes.num_idle_blocks,
                          .snapshots = prefixes.num_snapshots,
                          .snapshot_bytes = prefixes.snapshot_bytes,
                          .query_tokens = prefixes.num_query_tokens,
                          .cached_tokens = prefixes.num_cached_tokens,
                          .evicted_units = prefixes.num_evicted_units,
                          .evicted_snapshots = prefixes.num_evicted_snapshots,
                          .misses = {}};
  for (int miss = 0; miss < kNumCacheMisses; ++miss)
    cache.misses[cache_miss_name(static_cast<CacheMiss>(miss))] = prefixes.misses[static_cast<std::size_t>(miss)];
  return cache;
}

LiveStatus::Archive archive_of(const std::optional<ArchiveStatus>& kept) {
  if (!kept) return {};
  LiveStatus::Archive archive{
      .is_on = true, .steps = kept->num_kept, .bytes = kept->num_bytes, .left_out = kept->num_left_out, .drift = {}};
  for (int phase = 0; phase < kNumPhases; ++phase) {
    const PhaseDrift& drift = kept->drift[static_cast<std::size_t>(phase)];
    archive.drift.push_back({.phase = phase_name(static_cast<Phase>(phase)),
                             .median_ratio = drift.median_ratio,
                             .p99_ratio = drift.p99_ratio,
                             .is_alarmed = drift.is_alarmed});
  }
  return archive;
}

LiveStatus::Distribution distribution_of(const Histogram& histogram) {
  return {.bounds = {histogram.bounds().begin(), histogram.bounds().end()},
          .counts = {histogram.counts().begin(), histogram.counts().end()},
          .sum = histogram.sum()};
}

}  // namespace

LiveStatus make_live_status(const EngineReport& report, const std::vector<OpenRequestSight>& oldest,
                            const RecentActivity& recent, ServerFacts facts) {
  const EngineStats& stats = report.stats;
  const TransportCount& transport = stats.transport;
  return {.server = server_of(report.model, report.workers, std::move(facts)),
          .requests = requests_of(report, oldest),
          .tokens = {.prompt = stats.prompt_tokens,
                     .cached = stats.cached_tokens,
                     .computed = report.load.prompt_tokens,
                     .generated = stats.generation_tokens},
          .steps = steps_of(report.load),
          .recent = recent_of(recent),
          .ranks = ranks_of(report.workers, recent),
          .workers = workers_of(report.workers),
          .experts = {.count = report.model.num_experts,
                      .per_token = report.model.experts_per_token,
                      .balancedness = report.load.balancedness,
                      .touched = stats.touched.experts,
                      .layers = stats.touched.layers},
          .transport = {.layers = transport.layers,
                        .bytes_out = transport.bytes_out,
                        .bytes_in = transport.bytes_in,
                        .wait_s = transport.wait_s,
                        .transport_s = transport.transport_s},
          .cache = cache_of(report),
          .archive = archive_of(report.archive),
          .seconds = {.first_token = distribution_of(stats.first_token_s),
                      .between_tokens = distribution_of(stats.between_tokens_s),
                      .queue = distribution_of(stats.queue_s),
                      .total = distribution_of(stats.total_s)}};
}

}  // namespace ferry
