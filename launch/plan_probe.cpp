#include "launch/plan_probe.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "kernels/backend.h"
#include "kernels/roof.h"
#include "launch/work_count.h"
#include "moe/local_token_dispatcher.h"
#include "runtime/base/available_memory.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/cluster/core_policy.h"
#include "runtime/host_logits.h"
#include "runtime/model/cache_shapes.h"
#include "runtime/model/expert_loader.h"
#include "runtime/model/footprint.h"
#include "runtime/model/operators.h"
#include "runtime/model/trunk.h"
#include "runtime/model/weights_loader.h"
#include "runtime/rank_setup.h"

namespace ferry {
namespace {

using ProbeClock = std::chrono::steady_clock;

constexpr int64_t kProbeSequences = 64, kProbeTokens = 2048, kBlock = 16;
constexpr int64_t kShortPast = 64, kLongPast = 1024;  // tokens
constexpr int64_t kProbeBlocks = (kProbeTokens + kLongPast) / kBlock + kProbeSequences * (kShortPast / kBlock + 1);
constexpr std::array<int64_t, 7> kDecodeRows{1, 2, 4, 8, 16, 32, 64};
constexpr std::array<int64_t, 5> kPrefillRows{64, 128, 512, 1024, 2048};
constexpr std::array<int64_t, 8> kExpertRows{1, 2, 4, 8, 16, 32, 64, 128};
constexpr double kSecondsOfPoint = 0.15;  // that a point is measured for, and at least three times unless one takes that long

double seconds_since(ProbeClock::time_point start) { return std::chrono::duration<double>(ProbeClock::now() - start).count(); }

/// The middle of some runs of `run`, which returns seconds, behind one that does not count.
template <class Run>
double middle_of(Run&& run) {
  std::vector<double> seconds;
  double sum = run();
  if (sum > 4 * kSecondsOfPoint) return sum;
  sum = 0;
  while (seconds.size() < 3 || (sum < kSecondsOfPoint && seconds.size() < 60)) {
    seconds.push_back(run());
    sum += seconds.back();
  }
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

/// Where a step's time goes on a coordinator whose experts are elsewhere.
struct OwnTimes {
  double own = 0, shared = 0, head = 0;
};

/// In the place of the experts: takes rows and gives none back, and looks at the clock.
class Stopwatch final : public TokenDispatcher {
 public:
  Stopwatch(int64_t num_experts, DType row_dtype)
      : row_dtype_(row_dtype), placement_(ExpertPlacement::contiguous(1, num_experts, {&kHere, 1})), load_(1, num_experts) {}

  void begin_step(int64_t) override {
    times_ = {};
    last_ = ProbeClock::now();
  }
  DispatchHandle dispatch(const DispatchArgs&) override {
    times_.own += lap();
    return DispatchHandle(0);
  }
  void combine(DispatchHandle handle, MatrixView) override {
    handle.release();
    times_.shared += lap();
  }
  /// The step is over.
  OwnTimes take() {
    times_.head = lap();
    return times_;
  }
  void keep_alive() override {}
  void shut_down() override {}
  DType row_dtype() const override { return row_dtype_; }
  const ExpertPlacement& placement() const override { return placement_; }
  const ExpertLoad& expert_load() const override { return load_; }

 private:
  static constexpr Rank kHere{0};

  double lap() {
    const auto now = ProbeClock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

  DType row_dtype_;
  ExpertPlacement placement_;
  ExpertLoad load_;
  OwnTimes times_;
  ProbeClock::time_point last_;
};

/// The model's weights but for most of its experts.
struct ProbeWeights {
  Checkpoint checkpoint;
  LoadOptions load;
  TrunkWeights trunk;
  std::optional<ExpertBank> experts;
};

/// Runs the coordinator's part of steps, and experts, on one pool of threads.
class StepProbe {
 public:
  StepProbe(const ModelConfig& config, const ProbeWeights& weights, const Backend& backend, int num_threads,
            std::chrono::microseconds spin, DType dtype)
      : config_(config),
        weights_(weights),
        dtype_(dtype),
        pool_(num_threads, spin),
        stream_(backend, pool_),
        row_dtype_(takes_codes(weights.trunk.quantization.experts) ? DType::kI8 : dtype),
        stopwatch_(config.moe.num_experts, row_dtype_),
        kv_cache_(kv_options(), stream_.memory()),
        state_(state_options(), stream_.memory()),
        trunk_(config, weights.trunk, stream_, dtype,
               {.max_tokens = kProbeTokens, .max_logit_rows = kProbeSequences, .max_sequences = kProbeSequences}),
        logits_(stream_, {.dtype = dtype,
                          .max_rows = kProbeSequences,
                          .vocab_size = config.vocab_size,
                          .vocab_size_effective = static_cast<int32_t>(config.vocab_size),
                          .has_values = false}) {
    blocks_.resize(static_cast<std::size_t>(kProbeBlocks));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    for (int64_t s = 0; s < kProbeSequences; ++s) state_.reset(stream_, s);
  }

  RankCosts measure() {
    RankCosts costs;
    measure_decode(costs);
    measure_prefill(costs);
    measure_experts(costs);
    return costs;
  }

 private:
  KvCacheOptions kv_options() const {
    KvCacheOptions options = kv_cache_shape(config_, dtype_, kBlock);
    options.num_blocks = kProbeBlocks;
    return options;
  }
  RecurrentStateOptions state_options() const {
    RecurrentStateOptions options = recurrent_state_shape(config_, dtype_);
    options.num_slots = kProbeSequences;
    return options;
  }
  OwnTimes step(int64_t num_sequences, int64_t num_tokens, int64_t past, DeltaForm form);
  OwnTimes middle_step(int64_t num_sequences, int64_t num_tokens, int64_t past, DeltaForm form);
  void measure_decode(RankCosts& costs);
  void measure_prefill(RankCosts& costs);
  void measure_experts(RankCosts& costs);

  const ModelConfig& config_;
  const ProbeWeights& weights_;
  DType dtype_;
  ThreadPool pool_;
  Stream stream_;
  DType row_dtype_;
  Stopwatch stopwatch_;
  KvCache kv_cache_;
  RecurrentState state_;
  Trunk trunk_;
  HostLogits logits_;
  std::vector<int32_t> blocks_;
  StepRows rows_;
  std::vector<TokenId> tokens_;
};

OwnTimes StepProbe::step(int64_t num_sequences, int64_t num_tokens, int64_t past, DeltaForm form) {
  const int64_t blocks = (past + num_tokens + kBlock - 1) / kBlock;
  rows_.clear();
  for (int64_t s = 0; s < num_sequences; ++s) {
    tokens_.clear();
    for (int64_t i = 0; i < num_tokens; ++i)
      tokens_.push_back(static_cast<TokenId>((s * 7919 + (past + i) * 104729 + 17) % config_.vocab_size));
    rows_.add({.tokens = tokens_,
               .num_past = past,
               .block_table = blocks_.data() + s * blocks,
               .state_slot = static_cast<int32_t>(s),
               .logits = SequenceRows::Logits::kLast,
               .form = form});
  }
  const StepInput input = rows_.input(64);
  stopwatch_.begin_step(0);
  logits_.set(trunk_.forward(input, kv_cache_, state_, stopwatch_));
  logits_.all_tokens();
  return stopwatch_.take();
}

OwnTimes StepProbe::middle_step(int64_t num_sequences, int64_t num_tokens, int64_t past, DeltaForm form) {
  std::vector<OwnTimes> all;
  const double sum = middle_of([&] {
    all.push_back(step(num_sequences, num_tokens, past, form));
    return all.back().own + all.back().shared + all.back().head;
  });
  // The run that is in the middle as a whole says how its parts compare.
  return *std::ranges::min_element(all, {}, [&](const OwnTimes& t) { return std::abs(t.own + t.shared + t.head - sum); });
}

void StepProbe::measure_decode(RankCosts& costs) {
  for (const int64_t rows : kDecodeRows) {
    const OwnTimes t = middle_step(rows, 1, kShortPast, DeltaForm::kRecurrent);
    const auto r = static_cast<double>(rows);
    costs.own_decode.points.push_back({r, t.own});
    costs.shared_decode.points.push_back({r, t.shared});
    costs.head.points.push_back({r, t.head});
  }
  constexpr int64_t kFew = 4;
  const OwnTimes longer = middle_step(kFew, 1, kLongPast, DeltaForm::kRecurrent);
  constexpr auto kKeys = static_cast<double>(kFew * (kLongPast - kShortPast));
  costs.key_decode = std::max(0.0, (longer.own - costs.own_decode.at(kFew)) / kKeys);
  for (Curve::Point& p : costs.own_decode.points)  // the curve is that of sequences without a past
    p.seconds = std::max(0.0, p.seconds - p.rows * static_cast<double>(kShortPast) * costs.key_decode);
}

void StepProbe::measure_prefill(RankCosts& costs) {
  const int64_t longest = std::min(kProbeTokens, config_.max_context - 1);
  for (const int64_t rows : kPrefillRows) {
    if (rows > longest) break;
    const OwnTimes t = middle_step(1, rows, 0, DeltaForm::kChunk);
    const auto r = static_cast<double>(rows);
    costs.own_prefill.points.push_back({r, t.own});
    costs.shared_prefill.points.push_back({r, t.shared});
  }
  constexpr int64_t kPiece = 128;
  if (longest < kLongPast + kPiece) return;
  const OwnTimes later = middle_step(1, kPiece, kLongPast, DeltaForm::kChunk);
  constexpr auto kKeys = static_cast<double>(kPiece * kLongPast);
  costs.key_prefill = std::max(0.0, (later.own - costs.own_prefill.at(kPiece)) / kKeys);
}

/// T(n experts with m rows each) = call + n * cost(m), of the in-process dispatcher: rows are laid out, multiplied, added up.
void StepProbe::measure_experts(RankCosts& costs) {
  const ExpertBank& bank = *weights_.experts;
  const int64_t k = std::min(config_.moe.top_k, bank.num_local_experts());
  const int64_t most_groups = std::min<int64_t>(8, bank.num_local_experts() / k);
  const int64_t max_tokens = kExpertRows.back() * most_groups;
  LocalTokenDispatcher dispatcher(bank, stream_, {.max_tokens = max_tokens, .top_k = k, .dtype = dtype_});
  const Matrix tokens(stream_.memory(), row_dtype_, max_tokens, row_cols(row_dtype_, config_.hidden_dim));
  Array<float> ones(stream_.memory(), max_tokens * k);
  std::fill_n(ones.data().host(), max_tokens * k, 1.0F);
  Matrix out(stream_.memory(), dtype_, max_tokens, config_.hidden_dim);
  std::vector<int32_t> ids(static_cast<std::size_t>(max_tokens * k));
  std::vector<int64_t> layers;
  for (int64_t l = 0; l < bank.num_layers(); ++l)
    if (bank.down(l).front() != nullptr) layers.push_back(l);
  int64_t first = 0;
  const auto time_of = [&](int64_t groups, int64_t m) {
    const int64_t num_tokens = m * groups, touched = k * groups;
    return middle_of([&] {
      const auto start = ProbeClock::now();
      for (const int64_t layer : layers) {
        first = (first + touched) % bank.num_local_experts();
        for (int64_t i = 0; i < num_tokens * k; ++i)
          ids[static_cast<std::size_t>(i)] = static_cast<int32_t>((first + i % touched) % bank.num_local_experts());
        const auto count = static_cast<std::size_t>(num_tokens * k);
        DispatchHandle handle = dispatcher.dispatch({.layer = layer,
                                                     .tokens = {tokens.view().rows_from(0, num_tokens), ones.data()},
                                                     .topk_idx = {ids.data(), count},
                                                     .topk_weights = {ones.data().host(), count},
                                                     .slot_weights = ones.data(),
                                                     .top_k = k});
        dispatcher.combine(std::move(handle), out.top(num_tokens));
      }
      return seconds_since(start) / static_cast<double>(layers.size());
    });
  };
  for (const int64_t m : kExpertRows) {
    const double many = time_of(most_groups, m);
    if (m == 1 && most_groups > 1) {
      const double of_expert = std::max(0.0, (many - time_of(1, 1)) / static_cast<double>(k * (most_groups - 1)));
      costs.expert_call = std::max(0.0, many - of_expert * static_cast<double>(k * most_groups));
    }
    costs.expert.points.push_back(
        {static_cast<double>(m), std::max(0.0, many - costs.expert_call) / static_cast<double>(k * most_groups)});
  }
}

/// The experts of the first of as many ranks as it takes for its share to fit.
ExpertBank load_some_experts(const ModelConfig& config, const PlanModel& model, const ProbeWeights& weights, Matmul& matmul,
                             ThreadPool& pool) {
  const double all = model.expert_bytes * static_cast<double>(model.num_experts * model.num_expert_layers);
  const double room = std::min(4e9, static_cast<double>(available_memory_bytes()) / 4);
  const auto shares = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(all / room)), 1, model.num_experts);
  std::vector<LogicalExpertId> some;
  for (int32_t e = 0; e < (model.num_experts + shares - 1) / shares; ++e) some.push_back({e});
  const RankExperts experts(static_cast<std::size_t>(config.num_expert_layers()), some);
  return ExpertLoader(weights.checkpoint, config, matmul, weights.load).load_all(experts, pool);
}

/// Moves all of `bytes` through a socket; false if it is broken.
bool pass_bytes(int fd, std::span<char> bytes, bool is_write) {
  while (!bytes.empty()) {
    const ssize_t n = is_write ? write(fd, bytes.data(), bytes.size()) : read(fd, bytes.data(), bytes.size());
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

/// The middle of `count` round trips of `size` bytes between two threads over a socket; each sleeps until the other wrote.
double round_trip_s(std::size_t size, int count) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0)
    throw Error(ErrorCode::kUnavailable, "plan: no pair of sockets can be made");
  const FileDescriptor near(ends[0]), far(ends[1]);
  std::thread echo([size, count, fd = far.get()] {
    std::vector<char> bytes(size);
    for (int i = 0; i < count && pass_bytes(fd, bytes, false) && pass_bytes(fd, bytes, true); ++i) {
    }
  });
  std::vector<char> bytes(size);
  std::vector<double> trips;
  for (int i = 0; i < count; ++i) {
    const auto start = ProbeClock::now();
    if (!pass_bytes(near.get(), bytes, true) || !pass_bytes(near.get(), bytes, false)) break;
    trips.push_back(seconds_since(start));
  }
  shutdown(near.get(), SHUT_RDWR);
  echo.join();
  if (trips.empty()) throw Error(ErrorCode::kUnavailable, "plan: the pair of sockets broke");
  const auto middle = trips.begin() + std::ssize(trips) / 2;
  std::nth_element(trips.begin(), middle, trips.end());
  return *middle;
}

/// What a process of this host takes to wake another and to hear of it, and to hand bytes over.
void measure_link(PlanHost& host) {
  constexpr std::size_t kFew = 64, kMany = std::size_t{1} << 20;
  constexpr double kLeast = 1e-6;
  host.link_s = round_trip_s(kFew, 300);
  host.message_s = host.link_s / 2;
  host.link_bytes_per_s = 2.0 * static_cast<double>(kMany) / std::max(kLeast, round_trip_s(kMany, 30) - host.link_s);
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this";
}

/// Of a layer and of what it is made of, so that another number of such layers has the same costs.
std::string shape_text(const ModelConfig& c, const Quantization& quantization, DType dtype) {
  std::string text = c.class_name + " " + std::to_string(c.hidden_dim) + " vocab " + std::to_string(c.vocab_size) +
                     " experts " + std::to_string(c.moe.num_experts) + "x" + std::to_string(c.moe.intermediate_dim) + " top " +
                     std::to_string(c.moe.top_k) + " shared " + std::to_string(c.moe.shared_intermediate_dim) + " dense " +
                     std::to_string(c.dense.intermediate_dim) + " heads " + std::to_string(c.attention.num_heads) + "/" +
                     std::to_string(c.attention.num_kv_heads) + "x" + std::to_string(c.attention.head_dim) + " delta " +
                     std::to_string(c.gated_delta.num_v_heads) + "x" + std::to_string(c.gated_delta.v_dim) + " conv " +
                     std::to_string(c.short_conv.channels) + " " + dtype_name(dtype) + " " + quantization_name(quantization);
  // Which share of the layers has which mixer.
  for (const Mixer mixer : kMixers) {
    if (c.num_layers_of(mixer) == 0) continue;
    text += std::string(" ") + mixer_name(mixer) + " " + std::to_string(100 * c.num_layers_of(mixer) / c.num_layers()) + "%";
  }
  return text;
}

}  // namespace

PlanModel plan_model(const ModelConfig& c, const Quantization& quantization, DType dtype) {
  const RankFootprint apart = rank_footprint(c, quantization, dtype, 1);
  const int64_t layers = c.is_dense() ? c.num_layers() : c.num_layers_of(Ffn::kMixtureOfExperts);
  const bool is_codes = takes_codes(quantization.experts);
  const DType row = is_codes ? DType::kI8 : dtype;
  return {.shape = shape_text(c, quantization, dtype),
          .num_layers = c.num_layers(),
          .num_expert_layers = layers,
          .num_experts = c.moe.num_experts,
          .top_k = c.moe.top_k,
          .coordinator_bytes = apart.coordinator_bytes,
          .expert_bytes = apart.worker_bytes / static_cast<double>(layers * c.moe.num_experts),
          .bytes_per_token = static_cast<double>(KvCache::bytes_per_block(kv_cache_shape(c, dtype, 1))),
          .bytes_per_sequence = static_cast<double>(RecurrentState::bytes_per_slot(recurrent_state_shape(c, dtype))),
          .row_out_bytes = static_cast<double>(row_cols(row, c.hidden_dim) * dtype_bytes(row)) + (is_codes ? sizeof(float) : 0),
          .row_in_bytes = static_cast<double>(c.hidden_dim * dtype_bytes(dtype))};
}

HostEntry measure_host(const EngineOptions& options, const ModelConfig& config, const PlanModel& model) {
  const DType dtype = options.dtype.value_or(config.dtype);
  const int num_threads = options.threads > 0 ? options.threads : available_cores();
  const Backend backend = select_backend(options.kernels, options.matmul, dtype);
  HostEntry entry;
  entry.host = {
      .name = host_name(), .count = 1, .cores = num_threads, .ram_bytes = static_cast<double>(available_memory_bytes())};
  ProbeWeights weights{.checkpoint = Checkpoint::open(options.model), .load = {.dtype = dtype}, .trunk = {}, .experts = {}};
  weights.load.weights = plan_run_weights(options, config, weights.checkpoint);
  const CorePolicy alone{.cores = num_threads};
  {
    ThreadPool pool(num_threads, alone.thread_spin());
    {
      RoofProbe roof(pool);
      const std::string matmul = backend.matmul().name();
      entry.host.read_bytes_per_s = roof.read_bytes_per_s();
      entry.host.flops_per_s = roof.flops_per_s(dtype, matmul);
      entry.host.code_flops_per_s = roof.flops_per_s(DType::kI8, matmul);
    }
    weights.trunk = load_trunk(weights.checkpoint, config, backend, pool, weights.load);
    weights.experts.emplace(load_some_experts(config, model, weights, backend.matmul(), pool));
  }
  measure_link(entry.host);
  MeasuredCosts costs{.shape = model.shape, .num_layers = model.num_layers, .alone = {}, .beside = {}};
  const CorePolicy beside{.cores = num_threads, .has_workers = true, .ranks_on_cores = 2};
  costs.alone = StepProbe(config, weights, backend, num_threads, alone.thread_spin(), dtype).measure();
  costs.beside = StepProbe(config, weights, backend, num_threads, beside.thread_spin(), dtype).measure();
  entry.measured.push_back(std::move(costs));
  return entry;
}

void cost_by_roofs(PlanHost& host, const ModelConfig& config, const Quantization& quantization, DType dtype,
                   const PlanModel& model) {
  const WorkCount work(describe_operators(config, quantization, dtype), WorkCount::Experts::kOnWorkers);
  const Roofs roofs{.read_bytes_per_s = host.read_bytes_per_s * kPlanReadShare,
                    .flops_per_s = host.flops_per_s * kPlanMultiplyShare,
                    .code_flops_per_s = host.code_flops_per_s * kPlanMultiplyShare};
  const auto seconds = [&](const Work& w) {
    return std::max(w.bytes / roofs.read_bytes_per_s, w.all_flops() / roofs.mixed_flops_per_s(w));
  };
  RankCosts costs;
  for (const int64_t rows : kDecodeRows)
    costs.own_decode.points.push_back({static_cast<double>(rows), seconds(work.decode_step(rows, 0, 0))});
  for (const int64_t rows : kPrefillRows)
    costs.own_prefill.points.push_back({static_cast<double>(rows), seconds(work.prompt(rows, kProbeTokens, 0))});
  costs.key_decode = model.bytes_per_token / roofs.read_bytes_per_s;
  const double expert_flops = 6.0 * static_cast<double>(config.hidden_dim * config.moe.intermediate_dim);
  const double per_row = expert_flops / (takes_codes(quantization.experts) ? roofs.code_flops_per_s : roofs.flops_per_s);
  const double fixed = model.expert_bytes / roofs.read_bytes_per_s;
  for (const int64_t rows : kExpertRows)
    costs.expert.points.push_back({static_cast<double>(rows), fixed + per_row * static_cast<double>(rows)});
  host.alone = host.beside = costs;
}

}  // namespace ferry
