#include "runtime/engine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "moe/local_token_dispatcher.h"
#include "moe/remote_token_dispatcher.h"
#include "profiler/span.h"
#include "runtime/base/error.h"
#include "runtime/cache_plan.h"
#include "runtime/cluster/exit_guard.h"
#include "runtime/run_description.h"

namespace ferry {
namespace {

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
    return make_terms(options, config_, quantization(), *compute_);
  };
  cluster.agree(prepare, kLoadTimeout);
  if (cluster.group() != nullptr) group_.emplace(*cluster.group(), progress_);
  name_token_budget(options, [&] { make_dispatcher(options); });
  const std::chrono::milliseconds peer_timeout = to_milliseconds(options.peer_timeout_s);
  trace_ = std::make_unique<TraceSession>(
      group_ ? &*group_ : nullptr, *dispatcher_,
      describe_run(config_, dtype_, quantization(), scheduler_options_, dispatcher_->expert_map(), cluster_),
      pool().num_threads(), peer_timeout);
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
  make_expert_map(config_, cluster_);  // more workers than experts are refused before anything is read
  tokenizer_ = load_tokenizer(options);
  const auto vocab = static_cast<int32_t>(config_.vocab_size);
  vocab_size_effective_ = tokenizer() != nullptr ? std::min(tokenizer()->size(), vocab) : vocab;
  const CachePlan caches = plan_caches(options, config_, dtype_);
  scheduler_options_ = caches.scheduler;
  model_info_ = describe_model(config_, dtype_, scheduler_options_, cluster_);
  kv_cache_ = std::make_unique<KvCache>(caches.kv_cache);
  recurrent_state_ = std::make_unique<RecurrentState>(caches.recurrent_state);
  compute_.emplace(options, cluster_, dtype_);
  model_.emplace(options, cluster_, config_, dtype_, *compute_);
  const int64_t max_sequences = scheduler_options_.max_running;
  name_token_budget(options, [&] {
    trunk_ = std::make_unique<Trunk>(
        config_, model_->weights, *compute_->matmul, compute_->context, dtype_,
        Trunk::Limits{.max_tokens = scheduler_options_.token_budget,
                      .max_logit_rows = logit_rows == LogitRows::kAll ? scheduler_options_.token_budget : max_sequences,
                      .max_sequences = max_sequences,
                      .min_micro_batch = options.micro_batch.value_or(cluster_.default_micro_batch())});
  });
  sampler_scratch_ = std::make_unique<SamplerScratch>(config_.vocab_size);
  logits_row_.resize(static_cast<std::size_t>(config_.vocab_size));
}

const Tokenizer& Engine::require_tokenizer() const {
  if (tokenizer() == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition, "text needs a tokenizer (token ids work without): " + tokenizer_.complaint);
  }
  return *tokenizer();
}

void Engine::make_dispatcher(const EngineOptions& options) {
  const int64_t max_tokens = scheduler_options_.token_budget;
  if (model_->local_experts) {
    dispatcher_ = std::make_unique<LocalTokenDispatcher>(
        *model_->local_experts, *compute_->matmul, compute_->context,
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
                                     .row_dtype = takes_codes(quantization().experts) ? DType::kI8 : dtype_,
                                     .combine = options.combine,
                                     .timeout = to_milliseconds(options.peer_timeout_s)});
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
  return forward(rows_.input(prefill_quantum(scheduler_options_.prefill_chunk)));
}

std::span<const TokenId> Engine::run_step(const StepPlan& plan) {
  sample_rows(plan, compute(plan));
  return sampled_;
}

void Engine::fill_input(const StepPlan& plan) {
  rows_.clear();
  for (const StepEntry& entry : plan.entries) {
    const Sequence& sequence = *entry.sequence;
    if (entry.first_token == 0) recurrent_state_->reset(sequence.slot);
    const auto tokens = std::span(sequence.tokens)
                            .subspan(static_cast<std::size_t>(entry.first_token), static_cast<std::size_t>(entry.num_tokens));
    rows_.add(tokens, entry.first_token, sequence.blocks.data(), sequence.slot,
              entry.samples ? StepRows::Logits::kLast : StepRows::Logits::kNone);
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
