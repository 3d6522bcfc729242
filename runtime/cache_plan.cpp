#include "runtime/cache_plan.h"

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/base/error.h"
#include "runtime/model/cache_shapes.h"
#include "runtime/state/memory_plan.h"

namespace ferry {
namespace {

constexpr int64_t kBlockTokens = 16;  // of a KV block

/// With as many snapshots as there is memory for, and units to have one.
PrefixCacheOptions plan_prefix_cache(const EngineOptions& options, const SchedulerOptions& scheduler, int64_t snapshot_bytes) {
  const int64_t bytes = options.prefix_cache_bytes.value_or(0);
  const int64_t num_units = scheduler.num_blocks * scheduler.block_tokens / prefix_unit_tokens(scheduler);
  PrefixCacheOptions cache{.has_states = snapshot_bytes > 0, .snapshot_bytes = snapshot_bytes};
  if (cache.has_states) cache.num_snapshots = std::min(num_units, bytes / snapshot_bytes);
  cache.is_on = bytes > 0 && num_units > 0 && (!cache.has_states || cache.num_snapshots > 0);
  return cache;
}

/// Pages that hold a unit's keys and values or a state, whichever is less, in whole pages of the system.
PrefixFileOptions plan_prefix_file(const EngineOptions& options, const PrefixCacheOptions& cache, int64_t unit_bytes) {
  if (options.prefix_file_bytes == 0) return {};
  const std::string given = "--prefix-cache-disk is " + std::to_string(options.prefix_file_bytes) + "; allowed: ";
  if (!cache.is_on) throw_invalid(given + "0, since --prefix-cache-memory leaves no prefix cache");
  constexpr int64_t kSystemPage = 4096;
  const auto num_pages_of = [](int64_t bytes, int64_t page) { return std::max<int64_t>((bytes + page - 1) / page, 1); };
  const int64_t state_bytes = cache.has_states ? cache.snapshot_bytes : unit_bytes;
  const int64_t least = unit_bytes == 0 ? state_bytes : std::min(unit_bytes, state_bytes);
  PrefixFileOptions file{.page_bytes = num_pages_of(least, kSystemPage) * kSystemPage};
  file.unit_pages = num_pages_of(unit_bytes, file.page_bytes);
  file.snapshot_pages = cache.has_states ? num_pages_of(state_bytes, file.page_bytes) : 0;
  file.num_pages = std::min<int64_t>(options.prefix_file_bytes / file.page_bytes, std::numeric_limits<int32_t>::max());
  const int64_t num_least = file.unit_pages + file.snapshot_pages;
  if (file.num_pages < num_least)
    throw_invalid(given + "0, or at least " + std::to_string(num_least * file.page_bytes) + ", " +
                  std::to_string(cache.has_states ? 2 : 1) + " records of this model");
  return file;
}

/// What the budget is and what it is for: `caches` say what a slot and a block take.
MemoryRequest memory_request(const EngineOptions& options, const ModelConfig& config, const CachePlan& caches) {
  const CacheNeed& need = options.cache_need;
  const int64_t most_tokens = need.num_sequences > 0 ? std::min(need.first_tokens, config.max_context) : config.max_context;
  MemoryRequest request{.budget_bytes = options.memory_bytes,
                        .bytes_per_slot = RecurrentState::bytes_per_slot(caches.recurrent_state),
                        .bytes_per_block = KvCache::bytes_per_block(caches.kv_cache),
                        .block_tokens = kBlockTokens,
                        .max_sequences = options.max_seqs,
                        .max_context = options.max_context.value_or(most_tokens),
                        .shares_blocks = options.shares_blocks};
  if (need.num_sequences == 0) return request;
  request.further_tokens = std::min(need.further_tokens, request.max_context);
  MemoryRequest needed = request;
  needed.max_sequences = need.num_sequences;
  if (!need.memory_is_given) request.budget_bytes = std::max(request.budget_bytes, whole_budget(needed));
  return request;
}

/// What would hold one of the whole context, and no fewer sequences for it, in MiB that are enough.
std::string memory_for_more(const MemoryRequest& request) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const int64_t mib = (uncut_budget(request) + kMiB - 1) / kMiB;
  return "--memory " + std::to_string(mib) + "MiB holds " + std::to_string(request.max_context);
}

}  // namespace

std::string CachePlan::describe() const {
  const std::string sequences =
      scheduler.max_running == 1 ? "one sequence" : std::to_string(scheduler.max_running) + " sequences at once";
  std::string what = sequences + " of up to " + std::to_string(scheduler.max_context) + " tokens";
  if (scheduler.max_running > 1) what += ", " + std::to_string(scheduler.num_blocks * kBlockTokens) + " together";
  if (!scheduler.memory_for_more.empty())
    what += "; the context is " + std::to_string(whole_context) + ": " + scheduler.memory_for_more;
  return what;
}

CachePlan plan_caches(const EngineOptions& options, const ModelConfig& config, DType dtype, const Speculation& speculation) {
  CachePlan caches{.kv_cache = kv_cache_shape(config, kv_cache_dtype(options.kv_cache_dtype, dtype), kBlockTokens),
                   .recurrent_state = recurrent_state_shape(config, dtype),
                   .scheduler = {},
                   .bytes = 0,
                   .whole_context = 0,
                   .bytes_text = "",
                   .swap_bytes = 0,
                   .snapshot_bytes = 0,
                   .unit_bytes = 0};
  if (options.max_context.value_or(1) > config.max_context) {
    throw_invalid("--max-context is " + std::to_string(*options.max_context) + "; allowed: 2 to the checkpoint's " +
                  std::to_string(config.max_context));
  }
  caches.recurrent_state.max_held = speculation.max_drafts;
  const int64_t block_bytes = KvCache::bytes_per_block(caches.kv_cache);
  const MemoryRequest request = memory_request(options, config, caches);
  const MemoryPlan plan = plan_memory(request);
  const int64_t num_swap_blocks = plan.num_slots == 1 ? 0  // nobody to give way to
                                  : block_bytes == 0  ? plan.num_blocks
                                                      : std::min(plan.num_blocks, options.swap_bytes / block_bytes);
  caches.swap_bytes = num_swap_blocks * block_bytes;
  caches.bytes = plan.bytes;
  caches.whole_context = request.max_context;
  caches.bytes_text = "--memory " + std::to_string(request.budget_bytes) + ": the cache of " +
                      std::to_string(plan.num_blocks * kBlockTokens) + " tokens";
  caches.kv_cache.num_blocks = plan.num_blocks;
  caches.recurrent_state.num_slots = plan.num_slots;
  caches.scheduler = {.max_running = plan.num_slots,
                      .max_waiting = options.max_waiting,
                      .token_budget = options.token_budget,
                      .prefill_chunk = options.prefill_chunk,
                      .num_blocks = plan.num_blocks,
                      .num_swap_blocks = num_swap_blocks,
                      .block_tokens = kBlockTokens,
                      .max_context = plan.max_context,
                      .memory_for_more = plan.max_context < request.max_context ? memory_for_more(request) : "",
                      .vocab_size = config.vocab_size,
                      .max_drafts = speculation.max_drafts,
                      .policy = options.policy,
                      .stop_token_ids = config.generation.stop_token_ids,
                      .placeholders = config.placeholders};
  caches.scheduler.prefix_cache =
      plan_prefix_cache(options, caches.scheduler, RecurrentState::snapshot_bytes(caches.recurrent_state));
  caches.snapshot_bytes = caches.scheduler.prefix_cache.num_snapshots * caches.scheduler.prefix_cache.snapshot_bytes;
  caches.unit_bytes = prefix_unit_tokens(caches.scheduler) / kBlockTokens * block_bytes;
  caches.scheduler.prefix_cache.file = plan_prefix_file(options, caches.scheduler.prefix_cache, caches.unit_bytes);
  SchedulerOptions limits = caches.scheduler;
  limits.prefix_cache.file = {};  // a disk says first whether it has room for what is known of it
  Scheduler check(limits);        // refuses limits that contradict each other before anything large is allocated
  return caches;
}

}  // namespace ferry
