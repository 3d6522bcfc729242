#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/matmul.h"
#include "moe/remote/remote_token_dispatcher.h"
#include "runtime/cache_plan.h"
#include "runtime/cluster.h"
#include "runtime/drafter.h"
#include "runtime/elastic/membership.h"
#include "runtime/engine_watch.h"
#include "runtime/expert_record.h"
#include "runtime/expert_witness.h"
#include "runtime/fault/fault_injector.h"
#include "runtime/host_logits.h"
#include "runtime/lazy_experts.h"
#include "runtime/loaded_model.h"
#include "runtime/loaded_vision.h"
#include "runtime/model/config.h"
#include "runtime/model/trunk.h"
#include "runtime/model_info.h"
#include "runtime/options/engine_options.h"
#include "runtime/prefix_file.h"
#include "runtime/rank_setup.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/state/kv_cache.h"
#include "runtime/state/recurrent_state.h"
#include "runtime/state/snapshot_space.h"
#include "runtime/state/swap_space.h"
#include "runtime/step_sampler.h"
#include "runtime/trace/trace_session.h"
#include "runtime/watched_links.h"
#include "runtime/worker_record.h"

namespace ferry {

class Engine;
struct StepShape;

/// Whether steps guess what follows, where the engine can.
enum class Drafting : uint8_t { kOff, kOn };

/// Hooks into the start of an engine.
struct EngineStart {
  LoadProgress* progress = nullptr;  // gets to know how loading goes, and outlives the constructor; null: stderr alone
  /// Called before the first weight is read. Config, model_info(), scheduler_options() and the tokenizer are known then, so
  /// that what only they can tell of the settings is found before the load. What it throws ends the start. May be empty.
  std::function<void(const Engine&)> check = {};
};

/// Rank 0's inner half: model, caches and dispatcher, and the step that drives them. Made by one thread and used by one at a
/// time.
class Engine {
 public:
  /// Rows of a step that may have logits: one per running sequence, or (for a dump) every row.
  enum class LogitRows { kSampled, kAll };

  /// Loads the checkpoint while the workers load theirs, and waits until all are ready. `watch_clock` is of the watch that ends
  /// an engine which stands still, and outlives this. Throws Error for a bad checkpoint or option, on this rank or another.
  Engine(const EngineOptions& options, Cluster& cluster, LogitRows logit_rows = LogitRows::kSampled,
         Clock& watch_clock = real_clock(), const EngineStart& start = {});
  /// Tells the workers to leave, unless the cluster was abandoned.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelConfig& config() const { return config_; }
  const ModelInfo& model_info() const { return model_info_; }
  const SchedulerOptions& scheduler_options() const { return scheduler_options_; }
  DType dtype() const { return dtype_; }
  const Quantization& quantization() const { return model_->weights.quantization; }
  /// What to count work with.
  Quantization costed_quantization() const;
  const LoadCount& load_count() const { return model_->load_count; }
  ThreadPool& pool() { return compute_->pool; }
  Matmul& matmul() const { return compute_->backend.matmul(); }
  /// Null: this rank computes on the CPU.
  const ComputeDevice* device() const { return compute_->device ? &*compute_->device : nullptr; }
  const char* kernels_name() const { return compute_->backend.kernels_name(); }
  /// Null if the checkpoint has no tokenizer that Ferry can read: then only token ids work.
  const Tokenizer* tokenizer() const { return tokenizer_.tokenizer ? &*tokenizer_.tokenizer : nullptr; }
  const LoadedTokenizer& loaded_tokenizer() const { return tokenizer_; }
  /// For what needs text; throws Error{kFailedPrecondition} that says why there is no tokenizer.
  const Tokenizer& require_tokenizer() const;
  /// For prompts with pictures; throws Error{kFailedPrecondition} that says why this run takes none.
  const MediaIntake& require_media() const;
  /// Bytes of a block of the KV cache, in all layers.
  int64_t kv_block_bytes() const { return KvCache::bytes_per_block(kv_cache_->options()); }
  /// How many sequences of how many tokens --memory has room for.
  const std::string& describe_caches() const { return caches_text_; }
  /// What requests share of what others have computed.
  std::string describe_prefix_cache() const;
  /// What pictures take of memory, or why this run takes none.
  std::string describe_media() const;
  TokenDispatcher& dispatcher() { return *dispatcher_; }
  /// A copy of a delta rule's matrices [num_v_heads * k_dim, v_dim] fp32, `state_layer` counted among the recurrent layers.
  Matrix delta_state(int state_layer, int64_t slot);
  /// Makes a slot of the recurrent states that of a new sequence; steps of a plan do so themselves.
  void reset_state(int64_t slot) { recurrent_state_->reset(compute_->stream, slot); }

  /// For who drives forward() and goes back to where sequences were: room for copies of their recurrent states, which the
  /// engine outlives, and copies of blocks of the KV cache, from[i] to to[i]. Throws std::bad_alloc, and
  /// Error{kResourceExhausted} that names `what` if the states do not fit the host.
  SnapshotSpace make_snapshots(int64_t num_snapshots, const std::string& what);
  void copy_blocks(std::span<const int32_t> from, std::span<const int32_t> to);

  /// Makes ready what steps of all sizes are computed with, so that no request waits for it, where a device computes all of
  /// them. Before the first step.
  void rehearse();

  /// Works on the pictures of the oldest sequence that waits for them, if any does, until `is_over` says so, which it asks
  /// every now and then.
  void encode_media(Scheduler& scheduler, const std::function<bool()>& is_over);
  /// Lets go of what it holds of pictures unless their sequence is still the oldest that waits.
  void let_go_of_media(const Scheduler& scheduler);
  /// Computes the plan's rows. Logits of the entries that sample, in order: sum of num_logits rows, valid until the next call;
  /// the step may still run until some are fetched. Throws Error if a worker is lost.
  HostLogits& compute(const StepPlan& plan);
  /// Computes the plan's rows, chooses tokens and tells of prompts what their requests want to know; valid until the next call.
  /// Throws Error if a worker is lost.
  StepChoices run_step(const StepPlan& plan);
  /// Between steps: what the scheduler's prefix cache gets from its file, and what it hears of it.
  void advance_prefix_file(Scheduler& scheduler) {
    if (prefix_file_) prefix_file_->advance(scheduler);
  }
  /// The same for a moment, while there is nothing to compute and requests wait for what is read.
  void wait_for_prefix_file(Scheduler& scheduler);
  /// Guesses what follows the sequences of a plan that was computed and committed, and tells the scheduler. Throws Error if a
  /// worker is lost.
  void draft(const StepPlan& plan, Scheduler& scheduler);
  /// Whether steps from now on guess: to compare with and without. To be called while no sequence is open.
  void set_drafting(Drafting drafting) { drafting_ = drafting; }

  /// The forward pass by itself, for `ferry dump` and `ferry bench`. Logits of the input's logit_rows, likewise.
  HostLogits& forward(const StepInput& input, const Tap* tap = nullptr);

  /// What stands beside the routers of steps from now on; null: nothing but a capture that records them.
  void set_routing(RoutingHook* hook) { routing_ = hook; }

  /// The number that the next forward() gives its step.
  int64_t next_step() const { return step_idx_; }
  /// Captures of all ranks; for the thread that steps.
  TraceSession& trace() { return *trace_; }
  /// Roofs to put beside operators in captures from now on.
  void set_roofs(double read_bytes_per_s, double flops_per_s);

  /// Call while no step runs, at least every kKeepAlivePeriod.
  void keep_alive();
  /// Call while no step runs, every idle_tick(): looks after workers that come, go or were lost.
  void tend_workers();
  std::chrono::milliseconds idle_tick() const;
  /// Between steps: as Membership's methods of the same names. Throws Error{kFailedPrecondition} too if there are no workers.
  void set_placement(std::vector<LayerPlacement> layers, uint32_t epoch, std::shared_ptr<PlacementOrder> order);
  void give_up(const PlacementOrder& order);
  /// Where workers may join, with the port that is really used; empty: nowhere.
  std::string elastic_address() const;

  /// How the workers stand, as of the last step, and their last changes. Any thread may call it.
  WorkerReport worker_report() const { return worker_record_.report(); }
  /// What was asked of experts up to the last step but one (all of them, a while after the last), and who holds them. Any
  /// thread may read it.
  const ExpertRecord& expert_record() const { return *expert_record_; }

  /// Marks of the thread that steps: whoever owns the steps says what it is at between them. An idle one says so anew every
  /// kIdleTick.
  Progress& progress() { return progress_; }
  static constexpr std::chrono::milliseconds kIdleTick{250};
  /// Looks at those marks from its own thread for as long as the engine lives; a dead engine ends the process.
  EngineWatch& watch() { return *watch_; }

  /// The cluster lost a rank: the destructor will not wait for anyone.
  void abandon();

 private:
  void place_experts(const EngineOptions& options);
  void load(const EngineOptions& options, LogitRows logit_rows, const EngineStart& start);
  StepShape step_shape(const Quantization& quantization, const Speculation& speculation) const;
  void require_room(const EngineOptions& options, const CachePlan& caches, const Checkpoint& checkpoint,
                    const Speculation& speculation);
  void require_screen(const Quantization& quantization) const;
  void make_dispatcher(const EngineOptions& options);
  void open_door(const EngineOptions& options);
  void settle_trace();
  void send_home();
  void make_orphans(const EngineOptions& options, int64_t max_tokens);
  void make_witness(const EngineOptions& options);
  std::unique_ptr<ExpertLoader> make_expert_loader(const EngineOptions& options, Matmul& matmul) const;
  RoutingHook* begin_routing(const StepInput& input);
  void note_change(const WorkerChange& change);
  void cut_links();
  std::vector<Link*> traced_links() const;
  void take_counts();
  void take_worker_counts();
  void note_placement();
  void move_blocks(const StepPlan& plan);
  void fill_input(const StepPlan& plan);
  void score_prompts(const StepPlan& plan);
  void add_scored_rows(const StepEntry& entry);
  void begin_states(const StepPlan& plan);
  void begin_state(const StepEntry& entry);
  Drafter* drafter() { return drafting_ == Drafting::kOn ? drafter_.get() : nullptr; }

  Cluster& cluster_;
  Progress progress_;
  std::optional<WatchedLinks> hub_;       // the cluster's, where it has one
  std::optional<Membership> membership_;  // likewise; what it has of links the dispatcher uses
  ModelConfig config_;
  DType dtype_ = DType::kF32;
  std::optional<Checkpoint> checkpoint_;  // until the model has it
  Speculation speculation_;
  std::optional<ExpertPlacement> placement_;  // the first one
  ModelInfo model_info_;
  SchedulerOptions scheduler_options_;
  LoadedTokenizer tokenizer_;
  DecoderLimits limits_;
  std::optional<ComputeResources> compute_;
  std::optional<LoadedModel> model_;
  std::unique_ptr<LoadedVision> vision_;  // null: only text
  std::string lacks_vision_;              // why
  std::unique_ptr<LazyExperts> orphans_;  // null: no worker is outlived
  std::optional<ExpertWitness> witness_;  // of what workers read that none of them has had
  std::optional<FaultInjector> faults_;   // of this rank
  WorkerRecord worker_record_;
  std::unique_ptr<TokenDispatcher> dispatcher_;
  RemoteTokenDispatcher* remote_ = nullptr;  // the same, where there are workers
  std::optional<ExpertRecord> expert_record_;
  std::optional<ExpertLoadFile> expert_load_file_;
  std::unique_ptr<TraceSession> trace_;
  std::unique_ptr<KvCache> kv_cache_;
  std::optional<SwapSpace> swap_space_;
  std::unique_ptr<RecurrentState> recurrent_state_;
  std::optional<SnapshotSpace> snapshots_;
  std::optional<PrefixFile> prefix_file_;
  std::string prefix_file_folder_, caches_text_;
  std::unique_ptr<Trunk> trunk_;
  std::optional<HostLogits> logits_;  // of the last step
  std::optional<StepSampler> sampler_;
  std::unique_ptr<Drafter> drafter_;  // null: no drafts
  Drafting drafting_ = Drafting::kOn;
  std::unique_ptr<EngineWatch> watch_;
  RoutingHook* routing_ = nullptr;
  int64_t step_idx_ = 0;
  bool abandoned_ = false;

  StepRows rows_;                                        // of the current step
  std::vector<TokenId> tokens_;                          // of the entry that is added
  std::vector<int32_t> scored_rows_;                     // of the current step, whose logits tell of prompts' tokens
  std::vector<StepSampler::PromptToken> scored_tokens_;  // of each
};

}  // namespace ferry
