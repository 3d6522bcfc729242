#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "kernels/roof.h"
#include "kernels/roof_probe.h"
#include "launch/bench_conditions.h"
#include "launch/bench_driver.h"
#include "launch/bench_peers.h"
#include "launch/bench_prompts.h"
#include "launch/bench_row.h"
#include "launch/commands.h"
#include "launch/draft_bench.h"
#include "launch/draft_row.h"
#include "launch/processor_name.h"
#include "launch/roof_share.h"
#include "launch/sample.h"
#include "launch/traced_run.h"
#include "launch/warm_up.h"
#include "launch/work_count.h"
#include "profiler/span.h"
#include "runtime/base/error.h"
#include "runtime/base/peak_memory.h"
#include "runtime/base/text_file.h"
#include "runtime/engine.h"
#include "runtime/model/operators.h"
#include "runtime/run_description.h"
#include "runtime/version.h"

namespace ferry {
namespace {

using SteadyClock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr int64_t kDecodePrompt = BenchOptions::kDecodePrompt;
constexpr int64_t kWarmUpSteps = 8;     // of a decode; the experts that they read are taken for all
constexpr int64_t kWarmUpTokens = 512;  // of a prompt
constexpr WarmUpLimits kWarmUpLimits;

/// What is timed, and what must come before it each time.
struct Repeated {
  std::function<void()> prepare, run;
  double tokens = 0;  // that `run` computes

  /// Tokens per second.
  double rate() const {
    prepare();
    const auto start = SteadyClock::now();
    run();
    return tokens / std::chrono::duration<double>(SteadyClock::now() - start).count();
  }
  WarmUpRun warm_up_run() const {
    const auto start = SteadyClock::now();
    const double now = rate();
    return {.rate = now, .seconds = std::chrono::duration<double>(SteadyClock::now() - start).count()};
  }
};

/// Before anything is timed: logits are finite, and a sequence's row in a batch, which has gone back to the end of its prompt,
/// has the bits that it has alone right behind its prompt.
void verify(BenchDriver& driver, int64_t batch) {
  const auto row_bytes = [](ConstMatrixView logits, int64_t row) {
    return std::string(reinterpret_cast<const char*>(logits.row_bytes(row)),
                       static_cast<std::size_t>(logits.cols * dtype_bytes(logits.dtype)));
  };
  const int64_t s = batch - 1, past = driver.context() + kDecodePrompt;
  for (int64_t i = 0; i < batch; ++i) driver.kept_prompt(i, kDecodePrompt);
  const std::string alone = row_bytes(driver.decode_alone(s, past).all_values(), 0);
  driver.go_back(batch);
  const ConstMatrixView logits = driver.decode(batch, past).all_values();
  if (row_bytes(logits, s) != alone)
    throw Error(ErrorCode::kInternal,
                "bench: a sequence's logits differ between a batch of " + std::to_string(batch) + " and alone");
  visit_dtype(logits.dtype, [&]<class T>() {
    for (int64_t i = 0; i < logits.cols; ++i) {
      if (!std::isfinite(to_float(logits.row<T>(s)[i])))
        throw Error(ErrorCode::kInternal, "bench: logit " + std::to_string(i) + " is not finite");
    }
  });
}

BenchDriver::Room room_of(const BenchOptions& options) {
  const CacheNeed need = cache_need_of(options);
  return {.first_tokens = need.first_tokens, .further_tokens = need.further_tokens};
}

std::optional<RoutingTrace> read_routing(const BenchOptions& options, const Engine& engine) {
  if (options.routing.empty()) return std::nullopt;
  const RoutingShape shape = routing_shape(engine.config());
  if (shape.layers.empty())
    throw_invalid("--routing: " + engine.config().name + " has no router; allowed: a mixture of experts");
  RoutingTrace trace = read_routing_trace(options.routing);
  require_shape(trace, shape, "--routing " + options.routing.string());
  return trace;
}

/// Checks the options as far as they can be known before the weights are read. Throws Error.
void check_inputs(const BenchOptions& options, const Engine& engine) {
  const int64_t longest = room_of(options).first_tokens, most = sequence_capacity(engine.scheduler_options());
  if (longest > most) {
    const std::string& memory = engine.scheduler_options().memory_for_more;
    const std::string more = memory.empty() ? "" : "; " + memory;
    throw_invalid("bench: sequences of " + std::to_string(longest) + " tokens (-d, -p, -n); allowed: up to " +
                  std::to_string(most) + " with this checkpoint, --memory and --max-context" + more);
  }
  read_routing(options, engine);
  if (options.prompt_file.empty()) return;
  engine.require_tokenizer();
  read_text_file(options.prompt_file);
}

/// The measurements, one after the other, on an engine of their own.
class Bench {
 public:
  Bench(const Options& options, Cluster& cluster)
      : options_(options),
        o_(options.bench),
        cluster_(cluster),
        engine_(options.engine, cluster, Engine::LogitRows::kSampled, real_clock(),
                {.check = [&](const Engine& e) { check_inputs(options.bench, e); }}) {
    check_batch();
    if (is_drafting()) choose_drafts();
    if (replay_) engine_.set_routing(&*replay_);
  }

  /// Prints what it finds.
  void run() {
    begin_depth(o_.depths.front());
    const bool is_traced = !options_.engine.trace.empty();
    if (is_traced) {
      const Roofs roofs = probe_roofs(RoofProbe::kStreamBytes);
      engine_.set_roofs(roofs.read_bytes_per_s, engine_.quantization().experts ? roofs.code_flops_per_s : roofs.flops_per_s);
      start_trace(engine_, options_);
    }
    if (!o_.json) print_head();
    for (const int64_t depth : o_.depths) {
      if (depth != driver_.context()) begin_depth(depth);
      for (const int64_t length : o_.prompt_lengths) run_prefill(length);
      for (const int64_t batch : batches_) run_decode(batch);
      driver_.end_requests();
    }
    run_drafts();
    if (is_traced) capture_ = finish_trace(engine_);
    if (o_.json) print_json();
    if (o_.peers && !o_.json) print_peers();
  }

  /// What run() recorded, if that was asked for.
  std::optional<Capture> take_capture() { return std::move(capture_); }
  /// "" if all shares are possible, else what is wrong.
  const std::string& complaint() const { return complaint_; }

 private:
  std::optional<RoutingReplay> make_replay() const;
  void check_batch() const;
  bool is_drafting() const { return engine_.scheduler_options().max_drafts > 0; }
  void choose_drafts();
  void run_drafts();
  DType factor_dtype() const;
  std::string unit_name();
  Roofs probe_roofs(double step_bytes);
  void begin_depth(int64_t depth);
  BenchRow measure(const BenchCase& what, double num_steps, const Work& work, const Repeated& warm_up, const Repeated& timed);
  BenchRow measure_once(const BenchCase& what, double num_steps, const Work& work, const Repeated& warm_up,
                        const Repeated& timed);
  void add_row(BenchRow row);
  void note_impossible(const BenchRow& row);
  void run_prefill(int64_t length);
  void run_decode(int64_t batch);
  std::string weights_name() const {
    return engine_.quantization().any() ? quantization_name(engine_.quantization()) : dtype_name(engine_.dtype());
  }
  void print_head();
  ordered_json rows_json(Phase phase) const;
  ordered_json conditions_json() const;
  void print_json();
  PeerSetup peer_setup();
  void print_peers();

  const Options& options_;
  const BenchOptions& o_;
  const std::vector<int64_t> batches_ = o_.batches.empty() ? std::vector<int64_t>{1} : o_.batches;
  Cluster& cluster_;
  Engine engine_;
  const std::optional<RoutingTrace> routing_ = read_routing(o_, engine_);  // what is replayed
  std::optional<RoutingReplay> replay_ = make_replay();
  BenchDriver driver_{engine_, room_of(o_), replay_ ? &*replay_ : nullptr};
  WorkCount work_{
      describe_operators(engine_.config(), engine_.costed_quantization(), engine_.dtype(), engine_.model_info().kv_cache_dtype),
      cluster_.num_workers() == 0 ? WorkCount::Experts::kHere : WorkCount::Experts::kOnWorkers};
  DraftBench draft_bench_{engine_};
  std::vector<int64_t> draft_batches_;
  std::vector<std::vector<TokenId>> draft_prompts_;  // of the largest of these batches
  std::vector<BenchRow> rows_;
  ordered_json drafts_ = ordered_json::array();
  std::optional<Capture> capture_;
  std::string complaint_;
};

std::optional<RoutingReplay> Bench::make_replay() const {
  if (!routing_) return std::nullopt;
  return RoutingReplay(*routing_, "--routing " + o_.routing.string());
}

void Bench::check_batch() const {
  const int64_t largest_batch = *std::max_element(batches_.begin(), batches_.end());
  if (largest_batch > driver_.max_sequences()) {
    throw_invalid("-b is " + std::to_string(largest_batch) + "; allowed: up to " + std::to_string(driver_.max_sequences()) +
                  " with this --memory, where each has " + std::to_string(room_of(o_).further_tokens) + " tokens");
  }
}

/// From here on sequences begin behind so many tokens, and it is proved that they do.
void Bench::begin_depth(int64_t depth) {
  const Span section(Zone::kSection, depth, pack_section(SectionRole::kWarmUp, Phase::kPrefill));
  driver_.set_context(*std::max_element(batches_.begin(), batches_.end()), depth);
  for (const int64_t batch : batches_) verify(driver_, batch);
  driver_.end_requests();
}

/// What most products multiply: codes if the routed experts are quantised.
DType Bench::factor_dtype() const { return engine_.quantization().experts ? DType::kI8 : engine_.dtype(); }

/// What multiplies those.
std::string Bench::unit_name() {
  if (engine_.device() != nullptr) return engine_.device()->open->multiply_unit(factor_dtype());
  return multiply_unit(factor_dtype(), engine_.matmul().name());
}

/// For a step that reads `step_bytes`.
Roofs Bench::probe_roofs(double step_bytes) {
  const Span section(Zone::kSection, 0, pack_section(SectionRole::kAside, Phase::kDecode));
  if (engine_.device() != nullptr) {
    vulkan::OpenDevice& device = *engine_.device()->open;
    return {device.read_bytes_per_s(static_cast<std::size_t>(step_bytes)), device.flops_per_s(engine_.dtype()),
            device.flops_per_s(DType::kI8)};
  }
  const std::string matmul = engine_.matmul().name();
  const MeasurementMemory measurement;
  // Touching a gibibyte takes longer than the steps of a small model, so the stream is no larger than a step. Below 32 MiB the
  // start of the threads would count.
  constexpr std::size_t kLeastStreamBytes = std::size_t{32} << 20;
  RoofProbe probe(engine_.pool(), std::clamp(static_cast<std::size_t>(step_bytes), kLeastStreamBytes, RoofProbe::kStreamBytes));
  return Roofs{probe.read_bytes_per_s(static_cast<std::size_t>(step_bytes)), probe.flops_per_s(engine_.dtype(), matmul),
               probe.flops_per_s(DType::kI8, matmul)};
}

/// Times what computes in `num_steps` steps that take `work` together. The warm-up comes after the roofs, whose probe leaves
/// other clocks and caches behind than steps do. If a share is impossible, the host may have been slower while the roofs were
/// taken, so they are taken some times more.
BenchRow Bench::measure_once(const BenchCase& what, double num_steps, const Work& work, const Repeated& warm_up,
                             const Repeated& timed) {
  constexpr int kMostProbes = 6;
  const double step_bytes = work.bytes / num_steps;
  BenchRow row{.what = what,
               .tokens_per_s = {},
               .work = work * (1 / timed.tokens),
               .roofs = probe_roofs(step_bytes),
               .warm_up = {},
               .transport = {},
               .recording = {}};
  {
    const Span section(Zone::kSection, what.size, pack_section(SectionRole::kWarmUp, what.phase));
    row.warm_up = ferry::warm_up(kWarmUpLimits, [&] { return warm_up.warm_up_run(); });
  }
  const TransportCount count_before = engine_.dispatcher().transport_count();
  {
    const Span section(Zone::kSection, what.size, pack_section(SectionRole::kMeasured, what.phase));
    std::vector<double> rates;
    for (int64_t r = 0; r < o_.repetitions; ++r) rates.push_back(timed.rate());
    row.tokens_per_s = summarise(std::move(rates));
  }
  row.transport = engine_.dispatcher().transport_count() - count_before;
  if (o_.recording_pairs > 0)
    row.recording = measure_recording_cost(engine_, trace_level(options_), o_.recording_pairs, [&] { return timed.rate(); });
  const auto probe_again = [&] { row.roofs = best_of(row.roofs, probe_roofs(step_bytes)); };
  probe_again();
  for (int probes = 2; probes < kMostProbes && !row.is_possible(); ++probes) probe_again();
  return row;
}

BenchRow Bench::measure(const BenchCase& what, double num_steps, const Work& work, const Repeated& warm_up,
                        const Repeated& timed) {
  constexpr int kMostRows = 3;
  return measure_possible_row(kMostRows, [&] { return measure_once(what, num_steps, work, warm_up, timed); });
}

void Bench::add_row(BenchRow row) {
  if (!row.is_possible()) note_impossible(row);
  if (!o_.json) print_bench_row(row);
  rows_.push_back(std::move(row));
}

void Bench::note_impossible(const BenchRow& row) {
  char text[200];
  std::snprintf(text, sizeof text, "%s reaches %.0f %% of a roof; possible: up to %.0f %%", row.what.name().c_str(),
                100 * row.share().nearer(), 100 * kMostShare);
  complaint_ += (complaint_.empty() ? "" : "; ") + std::string(text);
}

void Bench::run_prefill(int64_t length) {
  const auto prefill = [&](int64_t num_tokens) {
    return Repeated{.prepare = [&] { driver_.begin(0); },
                    .run =
                        [this, num_tokens] {
                          driver_.prompt(0, num_tokens);
                          driver_.end_requests();
                        },
                    .tokens = static_cast<double>(num_tokens)};
  };
  const Repeated timed = prefill(length);
  int64_t num_experts_read = 0;
  {
    const Span section(Zone::kSection, length, pack_section(SectionRole::kWarmUp, Phase::kPrefill));
    num_experts_read = driver_.count_experts_read([&] { timed.rate(); });
  }
  const int64_t chunk = engine_.scheduler_options().prefill_chunk, depth = driver_.context();
  const Work work = work_.prompt(depth, length, chunk, static_cast<double>(num_experts_read));
  const int64_t num_steps = (length + chunk - 1) / chunk;
  add_row(measure({.phase = Phase::kPrefill, .size = length, .depth = depth}, static_cast<double>(num_steps), work,
                  prefill(std::min(length, kWarmUpTokens)), timed));
}

void Bench::run_decode(int64_t batch) {
  {
    const Span section(Zone::kSection, kDecodePrompt, pack_section(SectionRole::kWarmUp, Phase::kPrefill));
    for (int64_t s = 0; s < batch; ++s) driver_.kept_prompt(s, kDecodePrompt);
  }
  const int64_t past = driver_.context() + kDecodePrompt;
  const auto decode = [&](int64_t num_steps) {
    return Repeated{.prepare = [this, batch] { driver_.go_back(batch); },
                    .run =
                        [this, batch, past, num_steps] {
                          for (int64_t i = 0; i < num_steps; ++i) driver_.decode(batch, past + i);
                        },
                    .tokens = static_cast<double>(batch * num_steps)};
  };
  const int64_t warm_up_steps = std::min(o_.decode_tokens, kWarmUpSteps);
  const Repeated warm_up = decode(warm_up_steps);
  int64_t num_experts_read = 0;
  {
    const Span section(Zone::kSection, batch, pack_section(SectionRole::kWarmUp, Phase::kDecode));
    num_experts_read = driver_.count_experts_read([&] { warm_up.rate(); });
  }
  const double experts_a_step = static_cast<double>(num_experts_read) / static_cast<double>(warm_up_steps);
  const auto num_steps = static_cast<double>(o_.decode_tokens);
  const Work work = work_.decode_step(batch, static_cast<double>(past) + num_steps / 2, experts_a_step) * num_steps;
  add_row(measure({.phase = Phase::kDecode, .size = batch, .depth = driver_.context()}, num_steps, work, warm_up,
                  decode(o_.decode_tokens)));
  driver_.end_requests();
}

/// On what drafts are measured. Throws Error for what does not fit.
void Bench::choose_drafts() {
  const int64_t most = draft_bench_.max_sequences(drafted_tokens(o_));
  draft_batches_ = o_.batches;
  for (const int64_t batch : BenchOptions::kDraftBatches)
    if (o_.batches.empty() && batch <= most) draft_batches_.push_back(batch);
  const int64_t largest = draft_batches_.empty() ? 1 : *std::max_element(draft_batches_.begin(), draft_batches_.end());
  if (largest > most || drafted_tokens(o_) > sequence_capacity(engine_.scheduler_options())) {
    throw_invalid("bench: drafts at " + std::to_string(largest) + " sequences of up to " + std::to_string(drafted_tokens(o_)) +
                  " tokens; allowed: up to " + std::to_string(most) + " sequences with this --memory and --max-context");
  }
  if (!o_.prompt_file.empty()) {
    draft_prompts_ = text_prompts(engine_.require_tokenizer(), read_text_file(o_.prompt_file), largest, kDecodePrompt);
  } else if (engine_.tokenizer() != nullptr) {
    draft_prompts_ = opening_prompts(*engine_.tokenizer(), largest, kDecodePrompt);
  } else {
    draft_prompts_ = numbered_prompts(engine_.config().vocab_size, largest, kDecodePrompt);
  }
}

void Bench::run_drafts() {
  if (options_.engine.speculation == Speculation{}) return;
  if (!o_.json && !is_drafting()) std::printf("drafts: none, as the checkpoint has no MTP layer\n");
  if (!is_drafting()) return;
  if (!o_.json) {
    std::printf("%-8s %6s %10s %10s   gain of the tokens/s%s\n", "phase", "size", "tokens/s", "plain",
                engine_.tokenizer() == nullptr ? " on token ids that are no text, as there is no tokenizer" : "");
  }
  const int64_t num_layers = engine_.config().num_layers_of(Ffn::kMixtureOfExperts);
  for (const int64_t batch : draft_batches_) {
    const DraftGain gain = measure_drafts(draft_bench_, {draft_prompts_.begin(), draft_prompts_.begin() + batch},
                                          o_.decode_tokens, o_.repetitions, num_layers);
    if (!o_.json) print_draft_row(batch, gain);
    drafts_.push_back(draft_row_json(batch, gain));
  }
}

void Bench::print_head() {
  const std::string experts = cluster_.num_workers() == 0
                                  ? "in process"
                                  : "on " + std::to_string(cluster_.num_workers()) + " workers (" + cluster_.transport() + ")";
  const std::string place = engine_.device() != nullptr ? "on " + engine_.device()->describe()
                                                        : std::to_string(engine_.pool().num_threads()) + " threads";
  std::printf("%s, %s, weights %s, %s, experts %s, %s + %s\n", engine_.config().name.c_str(), dtype_name(engine_.dtype()),
              weights_name().c_str(), place.c_str(), experts.c_str(), engine_.kernels_name(), engine_.matmul().name());
  if (routing_) {
    std::printf("routing of %lld rows from %s, each slot with the weight of the router's own choice\n",
                static_cast<long long>(routing_->num_rows()), o_.routing.c_str());
  }
  const LoadCount& load = engine_.load_count();
  std::printf("loaded %.2f GB in %.1f s, %.1f GB/s\n", static_cast<double>(load.bytes) * 1e-9, load.seconds,
              static_cast<double>(load.bytes) * 1e-9 / load.seconds);
  const SchedulerOptions& limits = engine_.scheduler_options();
  const long long cache_tokens = limits.num_blocks * limits.block_tokens;
  if (o_.depths != std::vector<int64_t>{0}) std::printf("cache of %lld tokens; contexts are computed once\n", cache_tokens);
  print_bench_head(kWarmUpLimits, (engine_.device() == nullptr ? "coordinator's threads can do (" : "device can do (") +
                                      unit_name() + (cluster_.num_workers() == 0 ? ")" : "), of its own work"));
}

/// The rows of a phase.
ordered_json Bench::rows_json(Phase phase) const {
  ordered_json rows = ordered_json::array();
  for (const BenchRow& row : rows_)
    if (row.what.phase == phase) rows.push_back(bench_row_json(row));
  return rows;
}

/// What else two results must have in common to be compared.
ordered_json Bench::conditions_json() const {
  const SchedulerOptions& limits = engine_.scheduler_options();
  ordered_json conditions{{"version", version_number()},
                          {"processor", processor_name()},
                          {"processors", static_cast<int64_t>(std::thread::hardware_concurrency())},
                          {"layers", engine_.config().num_layers()},
                          {"vocab_size", engine_.config().vocab_size},
                          {"decode_prompt", kDecodePrompt},
                          {"token_budget", limits.token_budget},
                          {"micro_batch", options_.engine.micro_batch.value_or(cluster_.default_micro_batch())}};
  conditions.update(option_conditions(options_));
  return conditions;
}

void Bench::print_json() {
  ordered_json object{{"model", engine_.config().name},
                      {"dtype", dtype_name(engine_.dtype())},
                      {"kv_cache_dtype", engine_.model_info().kv_cache_name()},
                      {"weights", weights_name()},
                      {"device", engine_.device() == nullptr ? "cpu" : engine_.device()->describe()},
                      {"threads", engine_.pool().num_threads()},
                      {"expert_workers", cluster_.num_workers()},
                      {"transport", cluster_.transport()},
                      {"kernels", engine_.kernels_name()},
                      {"matmul", engine_.matmul().name()},
                      {"multiply_unit", unit_name()},
                      {"load", {{"bytes", engine_.load_count().bytes}, {"seconds", engine_.load_count().seconds}}},
                      {"routing", routing_ ? ordered_json(o_.routing.string()) : ordered_json()},
                      {"is_possible", complaint_.empty()},
                      {"prefill", rows_json(Phase::kPrefill)},
                      {"decode", rows_json(Phase::kDecode)},
                      {"repetitions", o_.repetitions},
                      {"conditions", conditions_json()}};
  if (o_.peers) object["peers"] = peers_json(peer_setup(), rows_);
  if (options_.engine.speculation != Speculation{}) object["drafts"] = drafts_;
  std::printf("%s\n", object.dump(-1, ' ', false, ordered_json::error_handler_t::replace).c_str());
}

PeerSetup Bench::peer_setup() {
  return {.model = options_.engine.model,
          .weights = weights_name(),
          .threads = engine_.pool().num_threads(),
          .is_on_device = engine_.device() != nullptr,
          .decode_tokens = o_.decode_tokens,
          .decode_prompt = kDecodePrompt,
          .repetitions = o_.repetitions};
}

void Bench::print_peers() {
  for (const std::string& line : peer_lines(peer_setup(), rows_)) std::printf("%s\n", line.c_str());
}

}  // namespace

int run_bench(const Options& options, Cluster& cluster) {
  std::optional<Capture> capture;
  std::string complaint;
  {
    Bench bench(options, cluster);
    bench.run();
    capture = bench.take_capture();
    complaint = bench.complaint();
  }  // the workers go home before files are written
  if (capture) write_trace(options.engine.trace, std::move(*capture));
  if (complaint.empty()) return 0;
  std::fprintf(stderr, "ferry: bench: %s: a roof was measured too low or the work is counted as too much\n", complaint.c_str());
  return 1;
}

}  // namespace ferry
