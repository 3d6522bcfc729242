#include "launch/step_probe.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "comm/stream/stream_hub.h"
#include "kernels/backend.h"
#include "launch/probe_rank.h"
#include "moe/local_token_dispatcher.h"
#include "moe/remote/remote_token_dispatcher.h"
#include "moe/reply_writer.h"
#include "runtime/base/error.h"
#include "runtime/base/timeout_factor.h"
#include "runtime/cluster/core_policy.h"
#include "runtime/host_logits.h"
#include "runtime/model/cache_shapes.h"
#include "runtime/model/expert_loader.h"
#include "runtime/plan/expert_fit.h"

namespace ferry {
namespace {

using ProbeClock = std::chrono::steady_clock;

constexpr int64_t kProbeSequences = 64, kProbeTokens = 2048, kBlock = 16;
constexpr int64_t kShortPast = 64, kLongPast = 8192;  // tokens; of long ones fewer where they take more than kLongBytes
constexpr std::array<int64_t, 2> kLongRows{1, 4};     // sequences that look back on as many
constexpr int64_t kLongPiece = 512;                   // tokens of a prompt that do
constexpr int64_t kLongBytes = int64_t{256} << 20;    // of the cache
constexpr std::array<int64_t, 7> kDecodeRows{1, 2, 4, 8, 16, 32, 64};
constexpr std::array<int64_t, 4> kPrefillRows{64, 128, 512, 2048};
constexpr int kPasses = 8;
constexpr double kSecondsOfPass = 0.01;  // of one size
constexpr double kSecondsOfAll = 1;      // of one size, beyond which there is no further pass
constexpr std::chrono::seconds kPatience{60};

double seconds_of(ProbeClock::duration time) { return std::chrono::duration<double>(time).count(); }

/// What a process does in the place of a rank: answers rows by its slice of the experts as an expert worker does, until it is
/// told to go or its link ends. Counts the nanoseconds for which it computes.
class ProbeWorker {
 public:
  struct Options {
    const EngineOptions& engine;
    DType dtype;
    CorePolicy cores;
    int64_t top_k;
  };
  ProbeWorker(const ExpertBank& bank, const Options& options) : bank_(bank), options_(options) {}

  void run(FileDescriptor socket, std::atomic<int64_t>& compute_ns) const {
    StreamHub hub;
    const std::unique_ptr<Link> link = hub.adopt(std::move(socket), Rank{0});
    try {
      ThreadPool pool(options_.cores.default_threads(), options_.cores.thread_spin(options_.cores.default_threads()));
      const Backend backend = select_backend(options_.engine.kernels, options_.engine.matmul, options_.dtype);
      Stream stream(backend, pool);
      ReplyWriter writer(bank_, stream,
                         {.map_epoch = 1, .max_tokens = kProbeTokens, .top_k = options_.top_k, .dtype = options_.dtype});
      answer_all(*link, writer, compute_ns);
    } catch (const std::exception& error) {
      link->fail(error.what());
    }
  }

 private:
  // The next message may come while the last one is computed.
  static void answer_all(Link& link, ReplyWriter& writer, std::atomic<int64_t>& compute_ns) {
    std::array<AlignedBuffer, 2> inboxes;
    for (AlignedBuffer& inbox : inboxes) inbox = AlignedBuffer(static_cast<std::size_t>(max_request_bytes(writer.shape())));
    AlignedBuffer room(static_cast<std::size_t>(max_reply_bytes(writer.shape())));
    const auto post = [&](std::size_t i) {
      return link.irecv({inboxes[i].data(), inboxes[i].size()}, kRequestTag, Fit::kUpTo);
    };
    std::unique_ptr<PendingOp> receive = post(0);
    for (std::size_t at = 0;; at = 1 - at) {
      const std::size_t size = link.wait(*receive, ProbeClock::now() + scaled_timeout(kPatience));
      const std::span<const std::byte> message(inboxes[at].data(), size);
      receive = post(1 - at);
      if (read_header_of_any_epoch(message).kind != WireKind::kRows) return;
      const RequestView request = parse_request(message, writer.shape());
      const auto start = ProbeClock::now();
      const std::span<const std::byte> reply = writer.write(request, {room.data(), room.size()});
      compute_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(ProbeClock::now() - start).count();
      link.wait(*link.isend(reply, kReplyTag), ProbeClock::now() + scaled_timeout(kPatience));
    }
  }

  const ExpertBank& bank_;
  const Options& options_;
};

/// A part of the experts, shared.
ExpertBank slice_of(const ExpertBank& all, int64_t first, int64_t count) {
  std::vector<int64_t> num_local;
  for (int64_t l = 0; l < all.num_layers(); ++l) num_local.push_back(all.num_local_experts(l) > 0 ? count : 0);
  ExpertBank bank(num_local, all.dims(), all.type());
  for (int64_t l = 0; l < all.num_layers(); ++l) {
    for (int64_t e = 0; e < num_local[static_cast<std::size_t>(l)]; ++e) {
      if (auto expert = all.expert(l, first + e)) bank.set(l, e, std::move(expert));
    }
  }
  return bank;
}

/// Processes with the experts, and this end of their sockets. To be made while this process has one thread.
struct ProbeRanks {
  ProbeRanks(const StepProbeOptions& options, const ExpertBank& experts) {
    const ProbeWorker::Options worker{.engine = options.engine,
                                      .dtype = options.run.dtype,
                                      .cores = {.cores = options.num_threads,
                                                .is_coordinator = false,
                                                .has_workers = true,
                                                .ranks_on_cores = static_cast<int>(options.workers) + 1},
                                      .top_k = options.config.moe.top_k};
    const int64_t num_experts = experts.num_local_experts();
    int64_t first = 0;
    for (int64_t w = 0; w < options.workers; ++w) {
      const int64_t count = num_experts / options.workers + (w < num_experts % options.workers ? 1 : 0);
      const ExpertBank bank = slice_of(experts, first, count);
      first += count;
      auto [near, far] = connected_probe_sockets(ProbeSockets::kHost);
      sockets.push_back(std::move(near));
      processes.push_back(
          std::make_unique<ProbeRank>(std::move(far), [&](FileDescriptor socket, std::atomic<int64_t>& compute_ns) {
            ProbeWorker(bank, worker).run(std::move(socket), compute_ns);
          }));
    }
  }

  std::vector<std::unique_ptr<ProbeRank>> processes;
  std::vector<FileDescriptor> sockets;
};

/// The dispatcher that sends rows to such processes.
class ProbeJob {
 public:
  /// Takes the sockets of `ranks`, which outlives this.
  ProbeJob(const StepProbeOptions& options, const ExpertBank& experts, Stream& stream, ProbeRanks& ranks) : ranks_(ranks) {
    std::vector<Rank> numbers;
    std::vector<Link*> links;
    for (FileDescriptor& socket : ranks.sockets) {
      numbers.push_back({static_cast<int32_t>(std::ssize(numbers)) + 1});
      links_.push_back(hub_.adopt(std::move(socket), numbers.back()));
      links.push_back(links_.back().get());
    }
    dispatcher_ = std::make_unique<RemoteTokenDispatcher>(
        hub_, ExpertPlacement::contiguous(experts.num_layers(), experts.num_local_experts(), numbers), links, nullptr, stream,
        RemoteTokenDispatcher::Options{.hidden_dim = options.config.hidden_dim,
                                       .max_tokens = kProbeTokens,
                                       .top_k = options.config.moe.top_k,
                                       .dtype = options.run.dtype,
                                       .row_dtype = experts.row_dtype(options.run.dtype)});
  }

  RemoteTokenDispatcher& dispatcher() { return *dispatcher_; }
  /// Of each worker, since the start.
  std::vector<double> compute_s() const {
    std::vector<double> seconds;
    for (const auto& process : ranks_.processes) seconds.push_back(static_cast<double>(process->counter()) * 1e-9);
    return seconds;
  }

 private:
  const ProbeRanks& ranks_;
  StreamHub hub_;
  std::vector<std::unique_ptr<Link>> links_;
  std::unique_ptr<RemoteTokenDispatcher> dispatcher_;
};

/// Where a step's time goes, seconds.
struct StepSplit {
  double own = 0, shared = 0, head = 0;
  double routed = 0;   // from the rows' departure to their sums, without the shared expert
  double compute = 0;  // of that, the slowest worker's experts

  double sum() const { return own + shared + head + routed; }
  StepSplit operator/(double n) const { return {own / n, shared / n, head / n, routed / n, compute / n}; }
  StepSplit operator+(const StepSplit& o) const {
    return {own + o.own, shared + o.shared, head + o.head, routed + o.routed, compute + o.compute};
  }
};

/// In front of a dispatcher: lets all experts have as many rows, and looks at the clock.
class Stopwatch final : public TokenDispatcher {
 public:
  /// `inner` outlives this and has `num_experts` experts.
  Stopwatch(TokenDispatcher& inner, int64_t num_experts) : inner_(inner), num_experts_(num_experts) {}

  void begin_step(int64_t step) override {
    split_ = {};
    last_ = ProbeClock::now();
    inner_.begin_step(step);
  }
  DispatchHandle dispatch(const DispatchArgs& args) override {
    DispatchArgs even = args;
    even_.resize(args.topk_idx.size());
    for (int32_t& id : even_) id = static_cast<int32_t>(next_++ % num_experts_);
    even.topk_idx = even_;
    split_.own += lap();
    DispatchHandle handle = inner_.dispatch(even);
    split_.routed += lap();
    return handle;
  }
  void combine(DispatchHandle handle, MatrixView out) override {
    split_.shared += lap();
    inner_.combine(std::move(handle), out);
    split_.routed += lap();
  }
  /// The step is over.
  StepSplit take() {
    split_.head = lap();
    return split_;
  }
  bool sends_rows() const override { return true; }  // as if: the shared expert has a time of its own
  void keep_alive() override {}
  void shut_down() override {}
  DType row_dtype() const override { return inner_.row_dtype(); }
  const ExpertPlacement& placement() const override { return inner_.placement(); }
  const ExpertLoad& expert_load() const override { return inner_.expert_load(); }

 private:
  double lap() {
    const auto now = ProbeClock::now();
    return seconds_of(now - std::exchange(last_, now));
  }

  TokenDispatcher& inner_;
  int64_t num_experts_;
  int64_t next_ = 0;
  std::vector<int32_t> even_;
  StepSplit split_;
  ProbeClock::time_point last_;
};

/// What a step is made of.
struct StepShape {
  int64_t sequences = 1, tokens = 1;  // of each
  int64_t past = 0;
  DeltaForm form = DeltaForm::kRecurrent;
};

/// Runs steps of the coordinator, and what its experts take.
class StepProbe {
 public:
  StepProbe(const StepProbeOptions& options, const ProbeWeights& weights);
  RankCosts measure();

 private:
  KvCacheOptions kv_options() const {
    KvCacheOptions options = kv_cache_shape(config_, options_.run.kv_dtype, kBlock);
    const int64_t longest = std::max(kProbeTokens, long_past_ + kLongPiece);
    options.num_blocks =
        std::max({longest / kBlock, kLongRows.back() * (long_past_ / kBlock + 1), kProbeSequences * (kShortPast / kBlock + 1)});
    return options;
  }
  int64_t choose_long_past() const;
  void fill_cache();
  RecurrentStateOptions state_options() const {
    RecurrentStateOptions options = recurrent_state_shape(config_, options_.run.dtype);
    options.num_slots = kProbeSequences;
    return options;
  }
  StepSplit step(const StepShape& shape);
  StepSplit some_steps(const StepShape& shape);
  void note(const StepShape& shape, const StepSplit& split, double num_bytes);
  void note_keys(std::span<const StepSplit> splits);
  double bytes_of_step(const StepShape& shape);

  const StepProbeOptions& options_;
  const ModelConfig& config_;
  const int64_t num_experts_, num_layers_;
  const int64_t long_past_ = choose_long_past();  // tokens; 0: the model has no keys, or no room for so many
  ProbeRanks ranks_;                              // ahead of all that has threads
  const Backend backend_;
  ThreadPool pool_;
  Stream stream_;
  std::optional<ProbeJob> job_;
  std::unique_ptr<TokenDispatcher> local_;
  std::optional<Stopwatch> stopwatch_;
  KvCache kv_cache_;
  RecurrentState state_;
  Trunk trunk_;
  HostLogits logits_;
  std::vector<int32_t> blocks_;
  StepRows rows_;
  std::vector<TokenId> tokens_;
  RankCosts costs_;
  std::vector<ExpertPoint> expert_points_;
};

int64_t count_expert_layers(const ExpertBank& bank) {
  int64_t count = 0;
  for (int64_t l = 0; l < bank.num_layers(); ++l) count += bank.num_local_experts(l) > 0 ? 1 : 0;
  return count;
}

CorePolicy coordinator_cores(const StepProbeOptions& options) {
  return {.cores = options.num_threads,
          .has_workers = options.workers > 0,
          .ranks_on_cores = static_cast<int>(options.workers) + 1};
}

StepProbe::StepProbe(const StepProbeOptions& options, const ProbeWeights& weights)
    : options_(options),
      config_(options.config),
      num_experts_(weights.experts->num_local_experts()),
      num_layers_(count_expert_layers(*weights.experts)),
      ranks_(options, *weights.experts),
      backend_(select_backend(options.engine.kernels, options.engine.matmul, options.run.dtype)),
      pool_(options.num_threads, coordinator_cores(options).thread_spin(options.num_threads)),
      stream_(backend_, pool_),
      kv_cache_(kv_options(), stream_.memory()),
      state_(state_options(), stream_.memory()),
      trunk_(config_, weights.trunk, stream_, options.run.dtype,
             {.max_tokens = kProbeTokens,
              .max_logit_rows = kProbeSequences,
              .max_sequences = kProbeSequences,
              .screens_lm_head = options.run.screens_lm_head}),
      logits_(stream_, {.dtype = options.run.dtype,
                        .max_rows = kProbeSequences,
                        .vocab_size = config_.vocab_size,
                        .vocab_size_effective = static_cast<int32_t>(config_.vocab_size),
                        .has_values = false}) {
  if (options.workers == 0) {
    local_ = std::make_unique<LocalTokenDispatcher>(
        *weights.experts, stream_,
        LocalTokenDispatcher::Options{.max_tokens = kProbeTokens, .top_k = config_.moe.top_k, .dtype = options.run.dtype});
    stopwatch_.emplace(*local_, num_experts_);
  } else {
    job_.emplace(options, *weights.experts, stream_, ranks_);
    stopwatch_.emplace(job_->dispatcher(), num_experts_);
  }
  fill_cache();
  blocks_.resize(static_cast<std::size_t>(kv_cache_.options().num_blocks));
  std::iota(blocks_.begin(), blocks_.end(), 0);
  for (int64_t s = 0; s < kProbeSequences; ++s) state_.reset(stream_, s);
}

int64_t StepProbe::choose_long_past() const {
  const KvCacheOptions options = kv_cache_shape(config_, options_.run.kv_dtype, kBlock);
  if (options.num_layers == 0) return 0;
  const int64_t room = kLongBytes / KvCache::bytes_per_block(options) / kLongRows.back() * kBlock;
  const int64_t most = std::min({kLongPast, room, config_.max_context - kLongPiece}) / kBlock * kBlock;
  constexpr int64_t kFewest = 1024;  // of which the cost of one can be told
  return most >= kFewest ? most : 0;
}

/// Writes all of it: pages that nobody has written are one and the same, and read faster than any cache.
void StepProbe::fill_cache() {
  const Storage block = stream_.memory().allocate(static_cast<std::size_t>(KvCache::bytes_per_block(kv_cache_.options())));
  for (int64_t b = 0; b < kv_cache_.options().num_blocks; ++b) kv_cache_.write_block(stream_, b, block.address());
}

StepSplit StepProbe::step(const StepShape& shape) {
  const int64_t blocks = (shape.past + shape.tokens + kBlock - 1) / kBlock;
  rows_.clear();
  for (int64_t s = 0; s < shape.sequences; ++s) {
    tokens_.clear();
    for (int64_t i = 0; i < shape.tokens; ++i)
      tokens_.push_back(static_cast<TokenId>((s * 7919 + (shape.past + i) * 104729 + 17) % config_.vocab_size));
    rows_.add({.tokens = tokens_,
               .num_past = shape.past,
               .block_table = blocks_.data() + s * blocks,
               .state_slot = static_cast<int32_t>(s),
               .logits = SequenceRows::Logits::kLast,
               .form = shape.form});
  }
  const StepInput input = rows_.input(64);
  const std::vector<double> before = job_ ? job_->compute_s() : std::vector<double>();
  stopwatch_->begin_step(0);
  const ConstMatrixView logits = trunk_.forward(input, kv_cache_, state_, *stopwatch_);
  logits_.set(logits, trunk_.head().pending());
  logits_.all_tokens();
  StepSplit split = stopwatch_->take();
  const std::vector<double> after = job_ ? job_->compute_s() : std::vector<double>();
  for (std::size_t w = 0; w < after.size(); ++w) split.compute = std::max(split.compute, after[w] - before[w]);
  return split;
}

/// The mean of some steps behind one that does not count.
StepSplit StepProbe::some_steps(const StepShape& shape) {
  constexpr int kLeast = 2;
  const StepSplit first = step(shape);
  if (first.sum() > kSecondsOfAll) return first;
  StepSplit sum;
  int count = 0;
  while (count < kLeast || sum.sum() < kSecondsOfPass) {
    sum = sum + step(shape);
    ++count;
  }
  return sum / count;
}

/// Of a layer, both ways.
double StepProbe::bytes_of_step(const StepShape& shape) {
  if (!job_) return 0;
  const TransportCount before = job_->dispatcher().transport_count();
  step(shape);
  const TransportCount count = job_->dispatcher().transport_count() - before;
  return static_cast<double>(count.bytes_out + count.bytes_in) / static_cast<double>(std::max<int64_t>(1, count.layers));
}

void StepProbe::note(const StepShape& shape, const StepSplit& split, double num_bytes) {
  const auto rows = static_cast<double>(shape.sequences * shape.tokens);
  const auto layers = static_cast<double>(num_layers_);
  const bool is_decode = shape.form == DeltaForm::kRecurrent;
  (is_decode ? costs_.own_decode : costs_.own_prefill).points.push_back({rows, split.own});
  if (is_decode) costs_.head.points.push_back({rows, split.head});
  const double asked = rows * static_cast<double>(config_.moe.top_k);
  const double touched = std::min(asked, static_cast<double>(num_experts_));
  const double experts_s = job_ ? split.compute : split.routed;
  expert_points_.push_back({.experts = touched, .rows = std::round(asked / touched), .seconds = experts_s / layers});
  Curve& shared = is_decode ? costs_.shared_decode : costs_.shared_prefill;
  if (!job_) return shared.points.push_back({rows, split.shared});
  // Beside the experts, of which some may run while the shared one does: that is not counted twice.
  const double beside = std::max(0.0, split.routed + split.shared - split.compute);
  const double visible = std::min(split.shared, beside);
  shared.points.push_back({rows, visible});
  Curve& exchange = is_decode ? costs_.exchange_decode : costs_.exchange_prefill;
  if (exchange.points.empty() || num_bytes > exchange.points.back().size)
    exchange.points.push_back({num_bytes, (beside - visible) / layers});
}

RankCosts StepProbe::measure() {
  std::vector<StepShape> shapes;
  shapes.reserve(kDecodeRows.size() + kPrefillRows.size() + 2);
  for (const int64_t rows : kDecodeRows) shapes.push_back({.sequences = rows, .past = kShortPast});
  const int64_t longest = std::min(kProbeTokens, config_.max_context - 1);
  for (const int64_t rows : kPrefillRows)
    if (rows <= longest) shapes.push_back({.tokens = rows, .form = DeltaForm::kChunk});
  const std::size_t num_sizes = shapes.size();
  if (long_past_ > 0) {
    for (const int64_t rows : kLongRows) shapes.push_back({.sequences = rows, .past = long_past_});
    shapes.push_back({.tokens = kLongPiece, .past = long_past_, .form = DeltaForm::kChunk});
  }
  std::vector<StepSplit> best(shapes.size());
  for (int pass = 0; pass < kPasses; ++pass) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (pass > 0 && best[i].sum() * (pass + 1) > kSecondsOfAll) continue;
      const StepSplit split = some_steps(shapes[i]);
      if (pass == 0 || split.sum() < best[i].sum()) best[i] = split;
    }
  }
  for (std::size_t i = 0; i < num_sizes; ++i) note(shapes[i], best[i], bytes_of_step(shapes[i]));
  fit_experts(expert_points_, costs_);
  if (long_past_ == 0) return costs_;
  note_keys(std::span(best).subspan(num_sizes));
  return costs_;
}

/// From steps behind long_past_ tokens: of kLongRows, and of a prompt.
void StepProbe::note_keys(std::span<const StepSplit> splits) {
  for (std::size_t i = 0; i < kLongRows.size(); ++i) {
    const auto rows = static_cast<double>(kLongRows[i]);
    const double seconds = splits[i].own - costs_.own_decode.at(rows);
    costs_.keys_decode.points.push_back({rows, std::max(0.0, seconds / static_cast<double>(long_past_ - kShortPast))});
  }
  const auto prefill_keys = static_cast<double>(kLongPiece * long_past_);
  costs_.key_prefill = std::max(0.0, (splits[kLongRows.size()].own - costs_.own_prefill.at(kLongPiece)) / prefill_keys);
  for (Curve::Point& p : costs_.own_decode.points)  // the curve is that of sequences without a past
    p.seconds = std::max(0.0, p.seconds - costs_.of_keys(true, p.size, static_cast<double>(kShortPast)));
}

}  // namespace

RankCosts measure_steps(const StepProbeOptions& options, const ProbeWeights& weights) {
  return StepProbe(options, weights).measure();
}

}  // namespace ferry
