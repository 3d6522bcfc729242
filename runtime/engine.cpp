#include "runtime/engine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "moe/local_token_dispatcher.h"
#include "moe/remote_token_dispatcher.h"
#include "profiler/span.h"
#include "runtime/base/available_memory.h"
#include "runtime/base/error.h"
#include "runtime/cluster/exit_guard.h"
#include "runtime/command_line.h"
#include "runtime/model/cache_shapes.h"
#include "runtime/model/operators.h"
#include "runtime/state/memory_plan.h"
#include "runtime/version.h"

namespace ferry {
namespace {

constexpr int64_t kBlockTokens = 16;  // of a KV block

/// Runs `allocate`, whose buffers have a row for every token of a step: if they do not fit, the option to change is known.
void name_token_budget(const EngineOptions& options, const std::function<void()>& allocate) {
  try {
    allocate();
  } catch (const Error& error) {
    throw Error(error.code(), "--token-budget " + std::to_string(options.token_budget) + ": " + error.what());
  }
}

}  // namespace

Engine::Engine(const EngineOptions& options, Cluster& cluster, LogitRows logit_rows) : cluster_(cluster) {
  const auto prepare = [&] {
    load(options, logit_rows);
    return make_terms(options, config_, weights_.quantization, *compute_);
  };
  cluster.agree(prepare, kLoadTimeout);
  if (cluster.group() != nullptr) group_.emplace(*cluster.group(), progress_);
  name_token_budget(options, [&] { make_dispatcher(options); });
  const std::chrono::milliseconds peer_timeout = to_milliseconds(options.peer_timeout_s);
  trace_ = std::make_unique<TraceSession>(group_ ? &*group_ : nullptr, *dispatcher_, describe_run(), pool().num_threads(),
                                          peer_timeout);
  watch_ = std::make_unique<EngineWatch>(progress_, pool(), peer_timeout,
                                         [](const std::string& line) { exit_now(EXIT_FAILURE, "ferry: error: " + line); });
}

Engine::~Engine() {
  if (dispatcher_ == nullptr || abandoned_) return;
  try {
    dispatcher_->shut_down();
  } catch (const Error&) {
    cluster_.abandon();  // a worker that is gone needs no goodbye
  }
}

void Engine::abandon() {
  abandoned_ = true;
  cluster_.abandon();
}

void Engine::load(const EngineOptions& options, LogitRows logit_rows) {
  if (!options.trace.empty()) prepare_capture_folder(options.trace);
  config_ = load_config(options.model);
  dtype_ = options.dtype.value_or(config_.dtype);
  const ExpertMap map = make_expert_map(config_, cluster_);
  load_tokenizer(options);
  const LoadOptions load_options = make_load_options(options, dtype_);
  plan_caches(options);
  compute_.emplace(options, cluster_, dtype_);
  checkpoint_ = Checkpoint::open(options.model);
  weights_ = load_trunk(*checkpoint_, config_, *compute_->matmul, compute_->pool, load_options);
  if (cluster_.size() == 1)
    local_experts_ = load_experts(*checkpoint_, config_, map, 0, *compute_->matmul, compute_->pool, load_options);
  if (load_options.progress) std::fputc('\n', stderr);
  const int64_t max_sequences = scheduler_options_.max_running;
  name_token_budget(options, [&] {
    trunk_ = std::make_unique<Trunk>(
        config_, weights_, *compute_->matmul, compute_->context, dtype_,
        Trunk::Limits{.max_tokens = scheduler_options_.token_budget,
                      .max_logit_rows = logit_rows == LogitRows::kAll ? scheduler_options_.token_budget : max_sequences,
                      .max_sequences = max_sequences,
                      .min_micro_batch = options.micro_batch.value_or(cluster_.default_micro_batch())});
  });
  sampler_scratch_ = std::make_unique<SamplerScratch>(config_.vocab_size);
  logits_row_.resize(static_cast<std::size_t>(config_.vocab_size));
}

void Engine::load_tokenizer(const EngineOptions& options) {
  const auto vocab = static_cast<int32_t>(config_.vocab_size);
  vocab_size_effective_ = vocab;
  try {
    tokenizer_ = Tokenizer::load(options.model);
    vocab_size_effective_ = std::min(tokenizer_->size(), vocab);
  } catch (const Error& error) {
    tokenizer_complaint_ = error.what();
  }
}

const Tokenizer& Engine::require_tokenizer() const {
  if (!tokenizer_)
    throw Error(ErrorCode::kFailedPrecondition, "text needs a tokenizer (token ids work without): " + tokenizer_complaint_);
  return *tokenizer_;
}

/// Shares --memory between KV blocks and state slots and fixes the scheduler's limits.
void Engine::plan_caches(const EngineOptions& options) {
  KvCacheOptions kv = kv_cache_shape(config_, dtype_, kBlockTokens);
  RecurrentStateOptions state = recurrent_state_shape(config_, dtype_);
  if (options.max_context.value_or(1) > config_.max_context) {
    throw_invalid("--max-context is " + std::to_string(*options.max_context) + "; allowed: 2 to the checkpoint's " +
                  std::to_string(config_.max_context));
  }
  const MemoryPlan plan = plan_memory({.budget_bytes = options.memory_bytes,
                                       .bytes_per_slot = RecurrentState::bytes_per_slot(state),
                                       .bytes_per_block = KvCache::bytes_per_block(kv),
                                       .block_tokens = kBlockTokens,
                                       .max_sequences = options.max_seqs,
                                       .max_context = options.max_context.value_or(config_.max_context)});
  require_memory(plan.bytes, "--memory " + std::to_string(options.memory_bytes) + ": the cache of " +
                                 std::to_string(plan.num_blocks * kBlockTokens) + " tokens");
  kv.num_blocks = plan.num_blocks;
  state.num_slots = plan.num_slots;
  scheduler_options_ = {.max_running = plan.num_slots,
                        .max_waiting = options.max_waiting,
                        .token_budget = options.token_budget,
                        .prefill_chunk = options.prefill_chunk,
                        .num_blocks = plan.num_blocks,
                        .block_tokens = kBlockTokens,
                        .max_context = plan.max_context,
                        .vocab_size = config_.vocab_size,
                        .stop_token_ids = config_.generation.stop_token_ids,
                        .placeholders = config_.placeholders};
  Scheduler check(scheduler_options_);  // refuses limits that contradict each other before anything large is allocated
  kv_cache_ = std::make_unique<KvCache>(kv);
  recurrent_state_ = std::make_unique<RecurrentState>(state);
  model_info_ = {.name = config_.name,
                 .architecture = config_.class_name,
                 .dtype = dtype_,
                 .vocab_size = config_.vocab_size,
                 .context_length = plan.max_context,
                 .num_layers = config_.num_layers(),
                 .hidden_dim = config_.hidden_dim,
                 .num_experts = config_.moe.num_experts,
                 .experts_per_token = config_.moe.top_k,
                 .num_expert_workers = cluster_.num_workers(),
                 .transport = cluster_.transport(),
                 .generation = config_.generation};
}

void Engine::make_dispatcher(const EngineOptions& options) {
  const int64_t max_tokens = scheduler_options_.token_budget;
  if (local_experts_) {
    dispatcher_ = std::make_unique<LocalTokenDispatcher>(
        *local_experts_, *compute_->matmul, compute_->context,
        LocalTokenDispatcher::Options{.max_tokens = max_tokens, .top_k = config_.moe.top_k, .dtype = dtype_});
    return;
  }
  dispatcher_ = std::make_unique<RemoteTokenDispatcher>(
      *group_, make_expert_map(config_, cluster_), compute_->context,
      RemoteTokenDispatcher::Options{.num_layers = config_.num_layers(),
                                     .hidden_dim = config_.hidden_dim,
                                     .max_tokens = max_tokens,
                                     .top_k = config_.moe.top_k,
                                     .dtype = dtype_,
                                     .row_dtype = weights_.quantization.experts ? DType::kI8 : dtype_,
                                     .combine = options.combine,
                                     .timeout = to_milliseconds(options.peer_timeout_s)});
}

CaptureInfo Engine::describe_run() const {
  CaptureInfo info{.version = version_number(),
                   .command = command_line(),
                   .transport = cluster_.transport(),
                   .world_size = cluster_.size(),
                   .model = {.name = config_.name,
                             .dtype = dtype_name(dtype_),
                             .top_k = config_.moe.top_k,
                             .operators = describe_operators(config_, weights_.quantization, dtype_)}};
  for (const LayerPlan& layer : config_.layers) info.model.layer_types.emplace_back(mixer_name(layer.mixer));
  info.max_running_requests = scheduler_options_.max_running;
  info.num_kv_blocks = scheduler_options_.num_blocks;
  const ExpertMap& map = dispatcher_->expert_map();
  for (int32_t e = 0; e < map.num_logical(); ++e) {
    const PhysicalExpertId copy = map.copies_of({e}).front();
    info.expert_rank.push_back(map.ranks()[static_cast<std::size_t>(map.rank_idx_of(copy))].value);
  }
  return info;
}

void Engine::set_roofs(double read_bytes_per_s, double flops_per_s) { trace_->set_roofs(read_bytes_per_s, flops_per_s); }

ConstMatrixView Engine::forward(const StepInput& input, const Tap* tap) {
  const Progress::Scope computing(progress_, Progress::Activity::kComputing);
  check_context().step = step_idx_;
  dispatcher_->begin_step(step_idx_++);
  return trunk_->forward(input, *kv_cache_, *recurrent_state_, *dispatcher_, tap);
}

ConstMatrixView Engine::compute(const StepPlan& plan) {
  fill_input(plan);
  return forward({.token_ids = token_ids_,
                  .positions = positions_,
                  .sequences = spans_,
                  .block_tables = block_tables_,
                  .state_slots = slots_,
                  .logit_rows = logit_rows_,
                  .delta_chunk = prefill_quantum(scheduler_options_.prefill_chunk)});
}

std::span<const TokenId> Engine::run_step(const StepPlan& plan) {
  sample_rows(plan, compute(plan));
  return sampled_;
}

void Engine::fill_input(const StepPlan& plan) {
  token_ids_.clear();
  spans_.clear();
  block_tables_.clear();
  slots_.clear();
  logit_rows_.clear();
  positions_.resize(static_cast<std::size_t>(3 * plan.num_rows));
  for (const StepEntry& entry : plan.entries) {
    const Sequence& sequence = *entry.sequence;
    const auto first = sequence.tokens.begin() + entry.first_token;
    if (entry.first_token == 0) recurrent_state_->reset(sequence.slot);
    for (int64_t i = 0; i < entry.num_tokens; ++i) {
      for (int64_t axis = 0; axis < 3; ++axis) {
        positions_[static_cast<std::size_t>(axis * plan.num_rows + entry.first_row + i)] =
            static_cast<int32_t>(entry.first_token + i);
      }
    }
    token_ids_.insert(token_ids_.end(), first, first + entry.num_tokens);
    spans_.push_back({entry.first_row, entry.num_tokens, entry.first_token});
    block_tables_.push_back(sequence.blocks.data());
    slots_.push_back(sequence.slot);
    if (entry.samples) logit_rows_.push_back(static_cast<int32_t>(entry.first_row + entry.num_tokens - 1));
  }
}

void Engine::sample_rows(const StepPlan& plan, ConstMatrixView logits) {
  sampled_.clear();
  const Span span(Zone::kSample, plan.num_samples);
  for (const StepEntry& entry : plan.entries) {
    if (!entry.samples) continue;
    visit_dtype(dtype_, [&]<class T>() {
      const T* row = logits.row<T>(static_cast<int64_t>(sampled_.size()));
      for (std::size_t i = 0; i < logits_row_.size(); ++i) logits_row_[i] = to_float(row[i]);
    });
    const Sequence& sequence = *entry.sequence;
    sampled_.push_back(
        sample(logits_row_, vocab_size_effective_, sequence.request.sampling, sequence.num_generated(), *sampler_scratch_));
  }
}

}  // namespace ferry
