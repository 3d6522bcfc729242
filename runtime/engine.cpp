#include "runtime/engine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

#include "moe/device_token_dispatcher.h"
#include "moe/remote/remote_token_dispatcher.h"
#include "profiler/span.h"
#include "runtime/base/available_memory.h"
#include "runtime/base/error.h"
#include "runtime/base/timeout_factor.h"
#include "runtime/checkpoint/fingerprint.h"
#include "runtime/cluster/exit_guard.h"
#include "runtime/device_needs.h"
#include "runtime/dry_steps.h"
#include "runtime/elastic/instructions.h"
#include "runtime/model/operators.h"
#include "runtime/mtp_drafter.h"
#include "runtime/placement_choice.h"
#include "runtime/run_description.h"
#include "runtime/run_settings.h"

namespace ferry {
namespace {

constexpr int64_t kFewLogitRows =
    16;  // lm_head's weights are read once for so many rows of a prompt, also where few sequences run
constexpr std::chrono::milliseconds kFileSlice{20};    // for which the engine waits for a file before it looks for news
constexpr const char* kMessageStart = "<|im_start|>";  // of ChatML, which all templates are that Ferry renders

/// After how long a worker is suspected. The factor applies to one whose experts nobody else holds, or that has never answered.
RemoteTokenDispatcher::Patience straggler_timeouts() {
  RemoteTokenDispatcher::Patience usual;
  usual.at_least_alone = scaled_timeout(usual.at_least_alone);
  usual.at_first = scaled_timeout(usual.at_first);
  return usual;
}

/// Runs `allocate`, whose buffers have a row for every token of a step: if they do not fit, the option to change is known.
void name_token_budget(const EngineOptions& options, const std::function<void()>& allocate) {
  try {
    allocate();
  } catch (const Error& error) {
    throw Error(error.code(), "--token-budget " + std::to_string(options.token_budget) + ": " + error.what());
  }
}

/// The file behind the prefix cache; the options are known that are to be changed.
FileDescriptor open_prefix_file(const EngineOptions& options, const PrefixFileOptions& file) {
  try {
    return open_private_file(options.prefix_file_folder, file.num_pages * file.page_bytes);
  } catch (const Error& error) {
    throw Error(error.code(), "--prefix-cache-folder " + std::string(error.what()));
  }
}

PrefixFile::Options prefix_file_options(const EngineOptions& options, const CachePlan& caches) {
  return {.folder = options.prefix_file_folder,
          .pages = caches.scheduler.prefix_cache.file,
          .unit_bytes = caches.unit_bytes,
          .snapshot_bytes = caches.scheduler.prefix_cache.snapshot_bytes};
}

/// The loads of earlier runs, where the option wants any.
void open_expert_load(const EngineOptions& options, const ModelConfig& config, std::optional<ExpertLoadFile>& file) {
  if (options.expert_load.empty()) return;
  try {
    file.emplace(options.expert_load, LoadShape{.num_layers = config.num_layers(),
                                                .num_experts = std::max<int64_t>(config.moe.num_experts, 1),
                                                .has_drafts = config.mtp});
  } catch (const Error& error) {
    throw Error(error.code(), std::string("--expert-load: ") + error.what());
  }
}

}  // namespace

Engine::Engine(const EngineOptions& options, Cluster& cluster, LogitRows logit_rows, Clock& watch_clock,
               const EngineStart& start)
    : cluster_(cluster) {
  const auto prepare = [&] {
    try {
      place_experts(options);
    } catch (...) {
      send_assignments(cluster_, nullptr);  // who waits for one hears why from agree()
      throw;
    }
    load(options, logit_rows, start);
    return make_terms(options, config_, quantization(), *compute_);
  };
  const std::string difference = cluster.agree(prepare, kLoadTimeout);
  if (!difference.empty())
    std::fprintf(stderr, "ferry: warning: %s: results depend in their last bits on which rank holds an expert\n",
                 one_line(difference).c_str());
  if (cluster.hub() != nullptr) hub_.emplace(*cluster.hub(), progress_);
  name_token_budget(options, [&] { make_dispatcher(options); });
  expert_record_.emplace(dispatcher_->placement(), dispatcher_->expert_load());
  if (expert_load_file_) expert_load_file_->follow(*expert_record_);
  take_counts();
  const std::chrono::milliseconds peer_timeout = to_milliseconds(options.peer_timeout_s);
  CaptureInfo run =
      describe_run(config_, dtype_, model_info_.kv_cache_dtype, costed_quantization(), scheduler_options_, cluster_);
  run.settings = describe_settings(options, scheduler_options_, quantization(), model_info_.kv_cache_dtype,
                                   options.micro_batch.value_or(cluster_.default_micro_batch()));
  trace_ = std::make_unique<TraceSession>(
      hub_ ? &*hub_ : nullptr, [this] { return traced_links(); }, *dispatcher_, std::move(run), pool().num_threads(),
      peer_timeout);
  trace_->set_routing_shape(routing_shape(config_));
  faults_.emplace(options.faults, cluster.rank());
  if (cluster.takes_workers()) {
    try {
      open_door(options);
    } catch (...) {
      send_home();
      throw;
    }
  }
  std::function<uint64_t()> device_progress;
  if (device() != nullptr) device_progress = [&open = *device()->open] { return open.progress(); };
  const auto end = [](const std::string& line) { exit_now(EXIT_FAILURE, "ferry: error: " + line); };
  watch_ = std::make_unique<EngineWatch>(progress_, pool(), std::move(device_progress), peer_timeout, end, watch_clock);
}

Engine::~Engine() {
  settle_trace();
  if (expert_record_) take_counts();
  if (dispatcher_ != nullptr && !abandoned_) send_home();
}

/// Before links go.
void Engine::settle_trace() {
  if (trace_ == nullptr || abandoned_) return;
  try {
    trace_->settle();
  } catch (const Error&) {
    abandon();  // all links failed
  }
}

/// All workers: nothing more is asked of them.
void Engine::send_home() {
  try {
    if (membership_) membership_->close();
    dispatcher_->shut_down();
    if (remote_ != nullptr && remote_->workers().misses_some()) cluster_.abandon();
  } catch (const Error&) {
    cluster_.abandon();  // a worker that is gone needs no goodbye
  }
}

void Engine::abandon() {
  abandoned_ = true;
  cluster_.abandon();
}

/// What the checkpoint is, and which rank holds what of it: before much is read, so that all ranks can.
void Engine::place_experts(const EngineOptions& options) {
  if (!options.trace.empty()) prepare_capture_folder(options.trace);
  config_ = load_config(options.model);
  dtype_ = options.dtype.value_or(config_.dtype);
  checkpoint_.emplace(Checkpoint::open(options.model));
  speculation_ = choose_speculation(options, *checkpoint_, config_);
  open_expert_load(options, config_, expert_load_file_);
  placement_.emplace(
      first_placement(options, config_, cluster_, expert_load_file_ ? expert_load_file_->earlier() : std::nullopt));
  send_assignments(cluster_, &*placement_);
}

void Engine::load(const EngineOptions& options, LogitRows logit_rows, const EngineStart& start) {
  Checkpoint& checkpoint = *checkpoint_;
  const Speculation& speculation = speculation_;
  tokenizer_ = load_tokenizer(options);
  const auto vocab = static_cast<int32_t>(config_.vocab_size);
  const int32_t vocab_effective = tokenizer() != nullptr ? std::min(tokenizer()->size(), vocab) : vocab;  // the rest is padding
  const CachePlan caches = plan_caches(options, config_, dtype_, speculation);
  scheduler_options_ = caches.scheduler;
  if (tokenizer() != nullptr) scheduler_options_.prefix_cache.message_start = tokenizer()->id_of(kMessageStart);
  scheduler_options_.prefix_cache.hash_seed = std::random_device{}();
  model_info_ = describe_model(config_, dtype_, caches.kv_cache.dtype, scheduler_options_, cluster_);
  const int64_t max_sequences = scheduler_options_.max_running, max_drafts = scheduler_options_.max_drafts;
  const int64_t max_sampled = max_sequences + std::min(max_sequences * max_drafts, kMaxDraftRows);
  const int64_t few_rows = std::min(kFewLogitRows, scheduler_options_.token_budget);
  limits_ = {
      .max_tokens = scheduler_options_.token_budget,
      .max_logit_rows = logit_rows == LogitRows::kAll ? scheduler_options_.token_budget : std::max(max_sampled, few_rows),
      .max_sequences = max_sequences,
      .min_micro_batch = options.micro_batch.value_or(cluster_.default_micro_batch()),
      .screens_lm_head = options.lm_head_screen};
  FileDescriptor prefix_file(-1);
  const PrefixFileOptions& file_pages = scheduler_options_.prefix_cache.file;
  if (file_pages.num_pages > 0) prefix_file = open_prefix_file(options, file_pages);
  compute_.emplace(options, cluster_.place(), dtype_);
  if (device() != nullptr && caches.kv_cache.dtype == DType::kI8)  // which --device auto found
    throw_invalid("--kv-cache-dtype is int8; allowed: auto or bf16 with --device " + device()->describe());
  if (options.lm_head_screen) require_screen(plan_run_weights(options, config_, checkpoint).quantization);
  require_room(options, caches, checkpoint, speculation);
  kv_cache_ = std::make_unique<KvCache>(caches.kv_cache, compute_->stream.memory());
  swap_space_.emplace(*kv_cache_, compute_->stream, scheduler_options_.num_swap_blocks);
  recurrent_state_ = std::make_unique<RecurrentState>(caches.recurrent_state, compute_->stream.memory());
  snapshots_.emplace(*recurrent_state_, compute_->stream, scheduler_options_.prefix_cache.num_snapshots);
  prefix_file_folder_ = options.prefix_file_folder;
  caches_text_ = caches.describe();
  if (file_pages.num_pages > 0)
    prefix_file_.emplace(prefix_file_options(options, caches), std::move(prefix_file), *kv_cache_, *snapshots_,
                         compute_->stream);
  if (start.check) start.check(*this);
  const std::unique_ptr<LoadProgress> own_progress = start.progress == nullptr ? stderr_load_progress() : nullptr;
  model_.emplace(options, cluster_, config_, dtype_, *compute_, std::move(checkpoint),
                 own_progress ? *own_progress : *start.progress);
  checkpoint_.reset();
  vision_ = load_vision(options, model_->checkpoint, tokenizer(), *compute_, dtype_, sequence_capacity(scheduler_options_),
                        lacks_vision_);
  model_info_.takes_media = vision_ != nullptr;
  name_token_budget(options, [&] {
    trunk_ = std::make_unique<Trunk>(config_, model_->weights, compute_->stream, dtype_, limits_);
    if (device() != nullptr)
      device()->open->reserve_scratch(compute_->stream, op_limits(config_, step_shape(quantization(), speculation)));
  });
  logits_.emplace(compute_->stream, HostLogits::Options{.dtype = dtype_,
                                                        .max_rows = limits_.max_logit_rows,
                                                        .vocab_size = config_.vocab_size,
                                                        .vocab_size_effective = vocab_effective});
  sampler_.emplace(pool(), StepSampler::Options{.vocab_size = config_.vocab_size,
                                                .max_sequences = max_sequences,
                                                .max_drafts = max_drafts,
                                                .stop_ids = scheduler_options_.stop_token_ids});
  if (config_.mtp) {
    drafter_ = std::make_unique<MtpDrafter>(config_, model_->weights, *trunk_, dtype_, vocab_effective, speculation);
  } else if (max_drafts > 0) {
    drafter_ = std::make_unique<NgramDrafter>(max_drafts);
  }
  // Nothing of it is allocated yet, and all else is.
  require_memory(caches.swap_bytes, "--swap-memory " + std::to_string(options.swap_bytes) + ": the swap space");
  require_memory(caches.swap_bytes + caches.snapshot_bytes, "--prefix-cache-memory " +
                                                                std::to_string(options.prefix_cache_bytes.value_or(0)) +
                                                                ": the snapshots, beside the swap space");
}

StepShape Engine::step_shape(const Quantization& quantization, const Speculation& speculation) const {
  return {.dtype = dtype_,
          .quantization = quantization,
          .limits = limits_,
          .speculation = speculation,
          .num_workers = cluster_.num_workers(),
          .max_keys = sequence_capacity(scheduler_options_),
          .delta_chunk = prefill_quantum(scheduler_options_.prefill_chunk)};
}

/// On the CPU what comes after the caches is asked for when it is its turn; a device's memory is small beside what is loaded.
void Engine::require_room(const EngineOptions& options, const CachePlan& caches, const Checkpoint& checkpoint,
                          const Speculation& speculation) {
  if (device() == nullptr) return compute_->require_memory(caches.bytes, caches.bytes_text);
  const Quantization quantization = plan_run_weights(options, config_, checkpoint).quantization;
  const StepShape step = step_shape(quantization, speculation);
  require_device_memory(*device(),
                        {.weights = device_weight_bytes(config_, quantization, dtype_, cluster_.num_workers()),
                         .caches = caches.bytes,
                         .rows = step_row_bytes(config_, step) + device()->open->scratch_bytes(op_limits(config_, step)),
                         .pictures = vision_need(options, checkpoint, dtype_, sequence_capacity(scheduler_options_))});
}

Quantization Engine::costed_quantization() const {
  return limits_.screens_lm_head ? with_screened_head(quantization()) : quantization();
}

/// Before anything is loaded.
void Engine::require_screen(const Quantization& quantization) const {
  if (device() != nullptr || dtype_ != DType::kBF16 || quantization.lm_head || !has_argmax_screen(matmul())) {
    const std::string lm_head =
        quantization.lm_head ? weight_type_name(*quantization.lm_head) : std::string(dtype_name(dtype_));
    const std::string computes =
        device() != nullptr ? device()->describe() : std::string(matmul().name());  // a GPU has no Matmul
    throw_invalid("--lm-head-screen: lm_head is " + lm_head + " for " + computes +
                  "; allowed: bf16, for the CPU's own kernels (--device cpu, --matmul auto)");
  }
  compute_->require_memory(argmax_screen_bytes(config_.vocab_size, config_.hidden_dim),
                           "--lm-head-screen: the copy of lm_head in 8 bits");
}

const Tokenizer& Engine::require_tokenizer() const {
  if (tokenizer() == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition,
                "text needs a tokenizer (token ids work without): " + std::string(tokenizer_.complaint->what()));
  }
  return *tokenizer();
}

const MediaIntake& Engine::require_media() const {
  if (vision_ == nullptr) throw Error(ErrorCode::kFailedPrecondition, "pictures and videos cannot be taken: " + lacks_vision_);
  return vision_->intake;
}

std::string Engine::describe_prefix_cache() const {
  const PrefixCacheOptions& cache = scheduler_options_.prefix_cache;
  if (!cache.is_on) return "none";
  std::string what = "keys and values that --memory has room for";
  if (cache.has_states)
    what += ", and up to " + std::to_string(cache.num_snapshots) + " snapshots of recurrent states, of " +
            std::to_string(cache.snapshot_bytes) + " bytes each";
  if (cache.file.num_pages > 0)
    what += "; behind them a file of " + size_text(cache.file.num_pages * cache.file.page_bytes) + " in " + prefix_file_folder_;
  return what;
}

std::string Engine::describe_media() const {
  return vision_ == nullptr ? "none, " + lacks_vision_ : vision_->describe_memory();
}

void Engine::encode_media(Scheduler& scheduler, const std::function<bool()>& is_over) {
  if (vision_ == nullptr) return;
  const Progress::Scope computing(progress_, Progress::Activity::kComputing);
  vision_->encoder.advance(scheduler, is_over);
}

void Engine::let_go_of_media(const Scheduler& scheduler) {
  if (vision_ != nullptr) vision_->encoder.let_go(scheduler);
}

void Engine::make_dispatcher(const EngineOptions& options) {
  const int64_t max_tokens = scheduler_options_.token_budget;
  if (model_->local_experts) {
    dispatcher_ = make_in_process_dispatcher(*model_->local_experts, compute_->stream,
                                             {.max_tokens = max_tokens, .top_k = config_.moe.top_k, .dtype = dtype_});
    return;
  }
  if (!hub_->fails_together()) {
    make_orphans(options, max_tokens);
    if (device() == nullptr) make_witness(options);
  }
  std::vector<std::unique_ptr<Link>> links(placement_->ranks().size());
  std::vector<Link*> by_worker(links.size());
  for (int32_t r = 1; r < cluster_.size(); ++r) {
    std::unique_ptr<Link>& link = links[static_cast<std::size_t>(r) - 1];
    link = hub_->watch(cluster_.link({r}));
    by_worker[static_cast<std::size_t>(r) - 1] = link.get();
  }
  auto remote = std::make_unique<RemoteTokenDispatcher>(
      *hub_, *placement_, by_worker, orphans_.get(), compute_->stream,
      RemoteTokenDispatcher::Options{.hidden_dim = config_.hidden_dim,
                                     .max_tokens = max_tokens,
                                     .top_k = config_.moe.top_k,
                                     .dtype = dtype_,
                                     .row_dtype = takes_codes(quantization().experts) ? DType::kI8 : dtype_,
                                     .combine = options.combine,
                                     .timeout = to_milliseconds(options.peer_timeout_s),
                                     .patience = straggler_timeouts()},
      [this](const WorkerChange& change) { note_change(change); });
  for (int32_t r = 1; r < cluster_.size(); ++r) worker_record_.set_home({r}, cluster_.home({r}));
  remote_ = remote.get();
  dispatcher_ = std::move(remote);
  membership_.emplace(*remote_, *hub_, std::move(links),
                      Membership::Options{.redundancy = redundancy_of(*placement_, options.placement),
                                          .loads = [this] { return expert_record_->loads(); },
                                          .may_drop_links = [this] { return trace_->is_idle(); },
                                          .on_placement = [this] { note_placement(); },
                                          .witness = witness_ ? &*witness_ : nullptr,
                                          .timeout = to_milliseconds(options.peer_timeout_s),
                                          .rebalance_steps = options.placement.rebalance_steps},
                      [this](const WorkerChange& change) { note_change(change); });
}

/// Those who come must be this program with this checkpoint, and work by these options.
void Engine::open_door(const EngineOptions& options) {
  std::vector<bool> taken(1, true);
  for (int32_t r = 1; r < cluster_.size(); ++r) taken.push_back(true);
  membership_->open(cluster_.open_door(
      options.elastic, {.introduction = introduction_terms(checkpoint_fingerprint(model_->checkpoint)),
                        .instructions = make_instructions(make_terms(options, config_, quantization(), *compute_), options),
                        .taken = std::move(taken)}));
}

std::string Engine::elastic_address() const {
  return membership_ && membership_->door() != nullptr ? membership_->door()->address() : "";
}

std::unique_ptr<ExpertLoader> Engine::make_expert_loader(const EngineOptions& options, Matmul& matmul) const {
  return std::make_unique<ExpertLoader>(model_->checkpoint, config_, matmul,
                                        make_load_options(options, dtype_, config_, model_->checkpoint, *compute_));
}

void Engine::make_witness(const EngineOptions& options) {
  witness_.emplace(ExpertWitness::Options{
      .dtype = dtype_,
      .voice = voice_of(*compute_),
      .make_backend = [this, options] { return select_backend(options.kernels, options.matmul, dtype_); },
      .make_loader = [this, options](Matmul& matmul) { return make_expert_loader(options, matmul); },
      .works_now = cluster_.place().works_now});
}

/// What is computed here when workers are lost. It has a quarter of the memory that is free when the first one is.
void Engine::make_orphans(const EngineOptions& options, int64_t max_tokens) {
  constexpr int64_t kLeastBytes = int64_t{64} << 20;
  orphans_ = std::make_unique<LazyExperts>(
      [this, options] { return make_expert_loader(options, compute_->backend.matmul()); }, compute_->stream, pool(),
      LazyExperts::Options{.max_tokens = max_tokens,
                           .top_k = config_.moe.top_k,
                           .dtype = dtype_,
                           .max_bytes = std::max(kLeastBytes, available_memory_bytes() / 4)});
}

/// Notes it in the timeline and for reports, and prints one line that says who, why, where and when.
void Engine::note_change(const WorkerChange& change) {
  const uint64_t now = now_ticks();
  record_span(Zone::kWorkerChange, now, now, static_cast<uint32_t>(change.to), static_cast<uint32_t>(change.rank.value));
  const WorkerState before = worker_record_.note(change);
  if (trace_) trace_->note({.rank = change.rank, .from = before, .to = change.to, .reason = change.reason}, now);
  if (change.from == WorkerState::kVacant && change.to == WorkerState::kHealthy) return;
  std::fprintf(stderr, "ferry: %s\n", describe_change(change, worker_record_.home(change.rank)).c_str());
}

/// Of all that has been computed so far.
void Engine::take_counts() {
  expert_record_->take(dispatcher_->placement(), dispatcher_->expert_load());
  take_worker_counts();
}

void Engine::note_placement() {
  expert_record_->note_placement(remote_->placement(), membership_->is_set_by_hand() ? PlacedBy::kHand : PlacedBy::kFerry);
}

void Engine::set_placement(std::vector<LayerPlacement> layers, uint32_t epoch, std::shared_ptr<PlacementOrder> order) {
  if (!membership_) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this process holds all experts itself and has nowhere to move them; allowed: with workers over sockets");
  }
  membership_->set_placement(std::move(layers), epoch, std::move(order));
}

void Engine::give_up(const PlacementOrder& order) {
  if (membership_) membership_->give_up(order);
}

void Engine::take_worker_counts() {
  if (remote_ == nullptr) return;
  worker_record_.take(remote_->workers(), remote_->cover_count(), remote_->answer_count(), remote_->expert_cost(),
                      orphans_ ? orphans_->kept_bytes() : 0);
}

void Engine::keep_alive() {
  dispatcher_->keep_alive();
  take_counts();
}

/// Those that --fault wants to break, of workers that are there.
void Engine::cut_links() {
  for (const Rank rank : faults_->take_cuts()) {
    if (!membership_) continue;
    for (Link* const link : membership_->links()) {
      if (link != nullptr && link->peer() == rank) link->fail("cut by --fault");
    }
  }
}

/// Of the workers that a capture asks, by worker: who is in doubt would keep it, and all else, waiting.
std::vector<Link*> Engine::traced_links() const {
  if (!membership_) return {};
  std::vector<Link*> links = membership_->links();
  for (std::size_t w = 0; w < links.size(); ++w) {
    if ((remote_->workers().suspect() >> w & 1) != 0) links[w] = nullptr;
  }
  return links;
}

void Engine::tend_workers() {
  cut_links();
  if (!membership_) return;
  membership_->tend();
  take_worker_counts();
}

std::chrono::milliseconds Engine::idle_tick() const {
  constexpr std::chrono::milliseconds kBusyTick{10};
  return membership_ && membership_->is_busy() ? kBusyTick : kIdleTick;
}

void Engine::set_roofs(double read_bytes_per_s, double flops_per_s) { trace_->set_roofs(read_bytes_per_s, flops_per_s); }

HostLogits& Engine::forward(const StepInput& input, const Tap* tap) {
  const Progress::Scope computing(progress_, Progress::Activity::kComputing);
  take_counts();
  check_context().step = step_idx_;
  RoutingHook* const routing = begin_routing(input);
  faults_->begin_step(step_idx_);
  cut_links();
  if (membership_) membership_->begin_step();
  dispatcher_->begin_step(step_idx_++);
  const ConstMatrixView logits = trunk_->forward(input, *kv_cache_, *recurrent_state_, *dispatcher_, tap, routing);
  logits_->set(logits, trunk_->head().pending());
  dispatcher_->end_step();
  return *logits_;
}

/// What stands beside the routers of the step: what was set, or a capture's recorder.
RoutingHook* Engine::begin_routing(const StepInput& input) {
  RoutingRecorder* const recorder = routing_ == nullptr ? trace_->routing() : nullptr;
  if (recorder == nullptr) return routing_;
  recorder->begin_step(step_idx_);
  for (const SequenceSpan& s : input.sequences)
    recorder->add_rows(s.form == DeltaForm::kRecurrent ? RoutingPhase::kDecode : RoutingPhase::kPrefill, s.num_tokens);
  return recorder;
}

void Engine::rehearse() {
  if (device() == nullptr || !model_->local_experts) return;
  const Progress::Scope computing(progress_, Progress::Activity::kComputing);
  const std::vector<DryStep> steps = dry_steps(scheduler_options_);
  const std::vector<int32_t> block_table(static_cast<std::size_t>(scheduler_options_.num_blocks));
  device()->open->rehearse(compute_->stream, [&] {
    for (const DryStep& step : steps) {
      rows_.clear();
      tokens_.assign(static_cast<std::size_t>(step.num_tokens), TokenId{0});
      for (int64_t i = 0; i < step.num_sequences; ++i)
        rows_.add({.tokens = tokens_,
                   .num_past = step.num_past,
                   .block_table = block_table.data(),
                   .logits = SequenceRows::Logits::kLast,
                   .form = step.form});
      trunk_->forward(rows_.input(prefill_quantum(scheduler_options_.prefill_chunk)), *kv_cache_, *recurrent_state_,
                      *dispatcher_);
    }
  });
}

SnapshotSpace Engine::make_snapshots(int64_t num_snapshots, const std::string& what) {
  require_memory(num_snapshots * RecurrentState::snapshot_bytes(recurrent_state_->options()), what);
  return {*recurrent_state_, compute_->stream, num_snapshots};
}

void Engine::copy_blocks(std::span<const int32_t> from, std::span<const int32_t> to) {
  constexpr std::size_t kAtOnce = 64;  // blocks; 21 MB of the host at the shapes of Qwen3.5-35B
  FERRY_CHECK_EQ(from.size(), to.size());
  SwapSpace copies(*kv_cache_, compute_->stream, static_cast<int64_t>(std::min(kAtOnce, from.size())));
  for (std::size_t begin = 0; begin < from.size(); begin += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, from.size() - begin);
    for (std::size_t i = 0; i < count; ++i) copies.save(from[begin + i], static_cast<int64_t>(i));
    if (!compute_->stream.is_on_host()) compute_->stream.wait(compute_->stream.submit());
    for (std::size_t i = 0; i < count; ++i) copies.restore(static_cast<int64_t>(i), to[begin + i]);
  }
}

Matrix Engine::delta_state(int state_layer, int64_t slot) {
  const RecurrentStateOptions& options = recurrent_state_->options();
  const int64_t rows = options.num_v_heads * options.k_dim;
  const Address<float> state = recurrent_state_->delta(state_layer, slot);
  Matrix copy(DType::kF32, rows, options.v_dim);
  Stream& stream = compute_->stream;
  copy_rows(stream,
            ConstMatrixView{reinterpret_cast<const std::byte*>(state.raw()), DType::kF32, rows, options.v_dim, options.v_dim,
                            state.space()},
            copy.view());
  stream.wait(stream.submit());
  return copy;
}

HostLogits& Engine::compute(const StepPlan& plan) {
  if (prefix_file_) prefix_file_->save_blocks(plan.file_writes);
  move_blocks(plan);
  begin_states(plan);
  if (prefix_file_) prefix_file_->save_states(plan.file_writes);
  fill_input(plan);
  HostLogits& logits = forward(rows_.input(prefill_quantum(scheduler_options_.prefill_chunk)));
  if (drafter() != nullptr) drafter_->keep_step(plan);
  return logits;
}

/// What preempted sequences have computed leaves before anything is written to its blocks.
void Engine::move_blocks(const StepPlan& plan) {
  if (plan.saved_blocks.empty() && plan.restored_blocks.empty()) return;
  const Span span(Zone::kSwapBlocks, std::ssize(plan.saved_blocks), std::ssize(plan.restored_blocks));
  for (const BlockCopy& copy : plan.saved_blocks) swap_space_->save(copy.from, copy.to);
  for (const BlockCopy& copy : plan.restored_blocks) swap_space_->restore(copy.from, copy.to);
}

StepChoices Engine::run_step(const StepPlan& plan) {
  const Progress::Scope computing(progress_, Progress::Activity::kComputing);
  const auto begin = std::chrono::steady_clock::now();
  const StepSampler::Preparation preparation = sampler_->prepare(plan);
  const StepChoices choices = sampler_->run(plan, compute(plan));
  score_prompts(plan);
  const std::chrono::duration<double> duration = std::chrono::steady_clock::now() - begin;
  if (drafter() != nullptr) drafter_->note_step(plan, choices, duration.count());
  take_worker_counts();
  return choices;
}

/// A few rows of logits at a time, of hidden rows that are still there.
void Engine::score_prompts(const StepPlan& plan) {
  scored_rows_.clear();
  scored_tokens_.clear();
  for (const StepEntry& entry : plan.entries) {
    if (entry.sequence->request.sampling.prompt_logprobs) add_scored_rows(entry);
  }
  const auto most = static_cast<std::size_t>(limits_.max_logit_rows);
  for (std::size_t first = 0; first < scored_rows_.size(); first += most) {
    const std::size_t count = std::min(most, scored_rows_.size() - first);
    const ConstMatrixView logits = trunk_->logits_of(std::span(scored_rows_).subspan(first, count));
    logits_->set(logits, trunk_->head().pending());
    sampler_->score(std::span(scored_tokens_).subspan(first, count), *logits_);
  }
}

/// The row before each token of the prompt tells of it. A sequence that begins anew has some told already, or all.
void Engine::add_scored_rows(const StepEntry& entry) {
  Sequence& sequence = *entry.sequence;
  if (sequence.num_generated() > 0) return;
  const int64_t end = std::min(entry.first_token + entry.num_rows, sequence.num_prompt() - 1);
  for (int64_t i = std::max(entry.first_token, std::ssize(sequence.sampled.prompt_logprobs)); i < end; ++i) {
    scored_rows_.push_back(static_cast<int32_t>(entry.first_row + i - entry.first_token));
    scored_tokens_.push_back({.sequence = &sequence, .idx = i + 1});
  }
}

void Engine::begin_states(const StepPlan& plan) {
  for (const StepEntry& entry : plan.entries) {
    if (entry.begins) begin_state(entry);
  }
}

void Engine::begin_state(const StepEntry& entry) {
  const int32_t slot = entry.sequence->slot;
  if (entry.snapshot == kNoSnapshot) return recurrent_state_->reset(compute_->stream, slot);
  snapshots_->restore(entry.snapshot, slot);
}

void Engine::fill_input(const StepPlan& plan) {
  rows_.clear();
  auto save = plan.snapshots.begin();
  for (std::size_t e = 0; e < plan.entries.size(); ++e) {
    const StepEntry& entry = plan.entries[e];
    const Sequence& sequence = *entry.sequence;
    const auto first = sequence.tokens.begin() + entry.first_token;
    tokens_.assign(first, first + entry.num_rows - entry.num_drafts);
    tokens_.insert(tokens_.end(), sequence.drafts.begin(), sequence.drafts.begin() + entry.num_drafts);
    using Logits = SequenceRows::Logits;
    rows_.add({.tokens = tokens_,
               .num_past = entry.first_token,
               .block_table = sequence.blocks.data(),
               .state_slot = sequence.slot,
               .logits = !entry.samples         ? Logits::kNone
                         : entry.num_drafts > 0 ? Logits::kAll
                                                : Logits::kLast,
               .form = entry.is_decode ? DeltaForm::kRecurrent : DeltaForm::kChunk,
               .num_replayed = entry.num_replayed,
               .num_held = entry.num_drafts,
               .media = sequence.media.get()});
    for (; save != plan.snapshots.end() && save->entry == e; ++save)
      rows_.save_state(save->num_tokens - entry.first_token, snapshots_->place(save->snapshot));
  }
}

void Engine::wait_for_prefix_file(Scheduler& scheduler) {
  if (!prefix_file_) return;
  const auto end = std::chrono::steady_clock::now() + kFileSlice;
  while (scheduler.waits_for_file()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    prefix_file_->wait(left);
    prefix_file_->advance(scheduler);
  }
}

void Engine::draft(const StepPlan& plan, Scheduler& scheduler) {
  if (drafter() == nullptr) return;
  const Progress::Scope computing(progress_, Progress::Activity::kComputing);
  const uint64_t begin = now_ticks();
  const DraftContext context{.kv_cache = *kv_cache_, .recurrent_state = *recurrent_state_, .dispatcher = *dispatcher_};
  const DraftWork work = drafter_->draft(plan, scheduler, context);
  record_span(Zone::kDraft, begin, now_ticks(), static_cast<uint32_t>(work.num_rows),
              static_cast<uint32_t>(work.num_sequences));
}

}  // namespace ferry
