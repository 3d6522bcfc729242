#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "kernels/roof.h"
#include "kernels/roof_probe.h"
#include "launch/bench_driver.h"
#include "launch/bench_prompts.h"
#include "launch/commands.h"
#include "launch/draft_bench.h"
#include "launch/roof_share.h"
#include "launch/sample.h"
#include "launch/traced_run.h"
#include "launch/work_count.h"
#include "profiler/span.h"
#include "runtime/base/error.h"
#include "runtime/base/text_file.h"
#include "runtime/engine.h"
#include "runtime/model/operators.h"
#include "runtime/run_description.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr int64_t kDecodePrompt = BenchOptions::kDecodePrompt;
constexpr int64_t kWarmUpSteps = 4;  // of a decode; the experts that they read are taken for all

template <class Fn>
Sample tokens_per_second(int64_t repetitions, double tokens, Fn&& run) {
  std::vector<double> rates;
  for (int64_t r = 0; r < repetitions; ++r) {
    const auto start = Clock::now();
    run();
    rates.push_back(tokens / std::chrono::duration<double>(Clock::now() - start).count());
  }
  return summarise(std::move(rates));
}

/// Before anything is timed: logits are finite, and a sequence's row in a batch has the bits that it has alone.
void verify(BenchDriver& driver, int64_t batch) {
  const auto row_bytes = [](ConstMatrixView logits, int64_t row) {
    return std::string(reinterpret_cast<const char*>(logits.row_bytes(row)),
                       static_cast<std::size_t>(logits.cols * dtype_bytes(logits.dtype)));
  };
  const int64_t s = batch - 1;
  driver.prompt(s, kDecodePrompt);
  const std::string alone = row_bytes(driver.decode_alone(s, kDecodePrompt).all_values(), 0);
  for (int64_t i = 0; i < batch; ++i) driver.prompt(i, kDecodePrompt);
  const ConstMatrixView logits = driver.decode(batch, kDecodePrompt).all_values();
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

/// Tokens per second, the work that a token takes, and roofs measured before and after, of which the better has the word.
struct Measured {
  Sample tokens_per_s;
  Work work;  // of a token
  Roofs roofs;
  TransportCount transport;  // of all repetitions

  RoofShare share() const { return share_of_roof(work, tokens_per_s.median, roofs); }
  bool is_possible() const { return share().nearer() <= kMostShare; }
};

/// `total` of all layers that `count` has seen, for one of them.
double per_layer(double total, const TransportCount& count) { return total / static_cast<double>(count.layers); }

void print_transport(const TransportCount& count) {
  if (count.layers == 0) return;
  std::printf("%15s a layer: %.1f kB to the workers, %.1f kB back; %.0f us waited, %.0f us of it for the transport\n", "",
              per_layer(static_cast<double>(count.bytes_out) * 1e-3, count),
              per_layer(static_cast<double>(count.bytes_in) * 1e-3, count), per_layer(count.wait_s * 1e6, count),
              per_layer(count.transport_s * 1e6, count));
}

ordered_json transport_json(const TransportCount& count) {
  if (count.layers == 0) return nullptr;
  return {{"bytes_out", per_layer(static_cast<double>(count.bytes_out), count)},
          {"bytes_in", per_layer(static_cast<double>(count.bytes_in), count)},
          {"wait_us", per_layer(count.wait_s * 1e6, count)},
          {"transport_us", per_layer(count.transport_s * 1e6, count)}};
}

void print_row(const char* what, int64_t size, const Measured& m) {
  std::printf("%-8s %6lld %10.1f %10.1f %10.1f", what, static_cast<long long>(size), m.tokens_per_s.median, m.tokens_per_s.min,
              m.tokens_per_s.max);
  const RoofShare share = m.share();
  std::printf("   %5.1f %% of %5.1f GB/s   %5.1f %% of %.0f GFLOP/s%s\n", 100 * share.read, m.roofs.read_bytes_per_s * 1e-9,
              100 * share.flops, m.roofs.mixed_flops_per_s(m.work) * 1e-9, m.is_possible() ? "" : "   IMPOSSIBLE");
  print_transport(m.transport);
  std::fflush(stdout);
}

ordered_json sample_json(const Sample& sample) { return {{"median", sample.median}, {"min", sample.min}, {"max", sample.max}}; }

ordered_json row_json(const char* size_name, int64_t size, const Measured& m) {
  ordered_json row{{size_name, size},
                   {"tokens_per_s", sample_json(m.tokens_per_s)},
                   {"bytes_per_token", m.work.bytes},
                   {"flops_per_token", m.work.all_flops()}};
  const RoofShare share = m.share();
  row["read_bytes_per_s"] = m.roofs.read_bytes_per_s;
  row["flops_per_s"] = m.roofs.mixed_flops_per_s(m.work);
  row["share_of_read"] = share.read;
  row["share_of_flops"] = share.flops;
  row["share_of_roof"] = share.nearer();
  row["is_possible"] = m.is_possible();
  row["transport_per_layer"] = transport_json(m.transport);
  return row;
}

/// How many drafts were right at the first place, the second, …, of those that were tried there.
std::vector<double> right_shares(const DraftCount& count) {
  std::vector<double> shares;
  for (std::size_t i = 0; i < count.tried.size() && count.tried[i] > 0; ++i)
    shares.push_back(static_cast<double>(count.right[i]) / static_cast<double>(count.tried[i]));
  return shares;
}

void print_gain(int64_t batch, const DraftGain& g) {
  std::printf(
      "%-8s %6lld %10.1f %10.1f   %5.2f x (%.2f-%.2f), prompts %.2f x; %.2f tokens a step; %.1f experts a layer, %.1f plain; "
      "right",
      "drafts", static_cast<long long>(batch), g.tokens_per_s.median, g.plain_tokens_per_s.median, g.gain.median, g.gain.min,
      g.gain.max, g.prompt_gain, g.tokens_per_step, g.touched_experts, g.plain_touched_experts);
  for (const double share : right_shares(g.drafts)) std::printf(" %.0f", 100 * share);
  std::printf(g.drafts.tried[0] > 0 ? " %%\n" : " none tried\n");
  std::fflush(stdout);
}

ordered_json gain_json(int64_t batch, const DraftGain& g) {
  const std::vector<double> shares = right_shares(g.drafts);
  const auto num_places = static_cast<std::ptrdiff_t>(shares.size());
  return {{"sequences", batch},
          {"tokens_per_s", sample_json(g.tokens_per_s)},
          {"plain_tokens_per_s", sample_json(g.plain_tokens_per_s)},
          {"gain", sample_json(g.gain)},
          {"prompt_gain", g.prompt_gain},
          {"tokens_per_step", g.tokens_per_step},
          {"touched_experts", g.touched_experts},
          {"plain_touched_experts", g.plain_touched_experts},
          {"tried", std::vector<int64_t>(g.drafts.tried.begin(), g.drafts.tried.begin() + num_places)},
          {"right", std::vector<int64_t>(g.drafts.right.begin(), g.drafts.right.begin() + num_places)},
          {"right_share", shares}};
}

/// The measurements, one after the other, on an engine of their own.
class Bench {
 public:
  Bench(const Options& options, Cluster& cluster)
      : options_(options), o_(options.bench), cluster_(cluster), engine_(options.engine, cluster) {
    if (engine_.device() == nullptr) roof_.emplace(engine_.pool());
    check_limits();
    if (is_drafting()) choose_drafts();
    if (replay_) engine_.set_routing(&*replay_);
  }

  /// Prints what it finds.
  void run() {
    for (const int64_t batch : batches_) verify(driver_, batch);
    driver_.end_requests();
    const bool is_traced = !options_.engine.trace.empty();
    if (is_traced) {
      const Roofs roofs = probe_roofs(RoofProbe::kStreamBytes);
      engine_.set_roofs(roofs.read_bytes_per_s, engine_.quantization().experts ? roofs.code_flops_per_s : roofs.flops_per_s);
      start_trace(engine_, options_);
    }
    if (!o_.json) print_head();
    for (const int64_t length : o_.prompt_lengths) run_prefill(length);
    for (const int64_t batch : batches_) run_decode(batch);
    driver_.end_requests();
    run_drafts();
    if (is_traced) capture_ = finish_trace(engine_);
    if (o_.json) print_json();
  }

  /// What run() recorded, if that was asked for.
  std::optional<Capture> take_capture() { return std::move(capture_); }
  /// "" if all shares are possible, else what is wrong.
  const std::string& complaint() const { return complaint_; }

 private:
  int64_t longest() const {
    return std::max(*std::max_element(o_.prompt_lengths.begin(), o_.prompt_lengths.end()),
                    kDecodePrompt + o_.decode_tokens + 1);
  }
  std::optional<RoutingTrace> read_routing() const;
  std::optional<RoutingReplay> make_replay() const;
  void check_limits() const;
  bool is_drafting() const { return engine_.scheduler_options().max_drafts > 0; }
  void choose_drafts();
  void run_drafts();
  DType factor_dtype() const;
  std::string unit_name();
  Roofs probe_roofs(double step_bytes);
  template <class WarmUp, class Fn>
  Measured measure(Phase phase, int64_t size, double num_steps, double tokens, const Work& work, WarmUp&& warm_up, Fn&& run);
  void note_impossible(Phase phase, int64_t size, const Measured& m);
  void run_prefill(int64_t length);
  void run_decode(int64_t batch);
  std::string weights_name() const {
    return engine_.quantization().any() ? quantization_name(engine_.quantization()) : dtype_name(engine_.dtype());
  }
  void print_head();
  void print_json();

  const Options& options_;
  const BenchOptions& o_;
  const std::vector<int64_t> batches_ = o_.batches.empty() ? std::vector<int64_t>{1} : o_.batches;
  Cluster& cluster_;
  Engine engine_;
  std::optional<RoofProbe> roof_;                               // absent where a device computes
  const std::optional<RoutingTrace> routing_ = read_routing();  // what is replayed
  std::optional<RoutingReplay> replay_ = make_replay();
  BenchDriver long_driver_{engine_, longest(), replay_ ? &*replay_ : nullptr};
  BenchDriver driver_{engine_, kDecodePrompt + o_.decode_tokens + 1, replay_ ? &*replay_ : nullptr};
  WorkCount work_{describe_operators(engine_.config(), engine_.quantization(), engine_.dtype()),
                  cluster_.num_workers() == 0 ? WorkCount::Experts::kHere : WorkCount::Experts::kOnWorkers};
  DraftBench draft_bench_{engine_};
  std::vector<int64_t> draft_batches_;
  std::vector<std::vector<TokenId>> draft_prompts_;  // of the largest of these batches
  ordered_json prefill_ = ordered_json::array(), decode_ = ordered_json::array(), drafts_ = ordered_json::array();
  std::optional<Capture> capture_;
  std::string complaint_;
};

std::optional<RoutingTrace> Bench::read_routing() const {
  if (o_.routing.empty()) return std::nullopt;
  const RoutingShape shape = routing_shape(engine_.config());
  if (shape.layers.empty())
    throw_invalid("--routing: " + engine_.config().name + " has no router; allowed: a mixture of experts");
  RoutingTrace trace = read_routing_trace(o_.routing);
  require_shape(trace, shape, "--routing " + o_.routing.string());
  return trace;
}

std::optional<RoutingReplay> Bench::make_replay() const {
  if (!routing_) return std::nullopt;
  return RoutingReplay(*routing_, "--routing " + o_.routing.string());
}

void Bench::check_limits() const {
  if (longest() > sequence_capacity(engine_.scheduler_options())) {
    throw_invalid("bench: sequences of " + std::to_string(longest()) + " tokens; allowed: up to " +
                  std::to_string(sequence_capacity(engine_.scheduler_options())) + " with this --memory and --max-context");
  }
  const int64_t largest_batch = *std::max_element(batches_.begin(), batches_.end());
  if (largest_batch > driver_.max_sequences()) {
    throw_invalid("-b is " + std::to_string(largest_batch) + "; allowed: up to " + std::to_string(driver_.max_sequences()) +
                  " with this --memory");
  }
}

/// What most products multiply: codes if the routed experts are quantised.
DType Bench::factor_dtype() const { return engine_.quantization().experts ? DType::kI8 : engine_.dtype(); }

/// What multiplies those.
std::string Bench::unit_name() {
  if (!roof_) return engine_.device()->open->multiply_unit(factor_dtype());
  return multiply_unit(factor_dtype(), engine_.matmul().name());
}

/// For a step that reads `step_bytes`.
Roofs Bench::probe_roofs(double step_bytes) {
  const Span section(Zone::kSection, 0, pack_section(SectionRole::kAside, Phase::kDecode));
  if (!roof_) {
    vulkan::OpenDevice& device = *engine_.device()->open;
    return {device.read_bytes_per_s(static_cast<std::size_t>(step_bytes)), device.flops_per_s(engine_.dtype()),
            device.flops_per_s(DType::kI8)};
  }
  const std::string matmul = engine_.matmul().name();
  return Roofs{roof_->read_bytes_per_s(static_cast<std::size_t>(step_bytes)), roof_->flops_per_s(engine_.dtype(), matmul),
               roof_->flops_per_s(DType::kI8, matmul)};
}

/// Times `run`, which computes `tokens` tokens in `num_steps` steps that take `work` together. `warm_up` comes before it and
/// after the roofs, whose probe leaves other clocks and caches behind than steps do. A share that is impossible may be the
/// host's doing, slow while the roofs were taken and fast again: they are measured some times more then.
template <class WarmUp, class Fn>
Measured Bench::measure(Phase phase, int64_t size, double num_steps, double tokens, const Work& work, WarmUp&& warm_up,
                        Fn&& run) {
  constexpr int kMostProbes = 6;
  const double step_bytes = work.bytes / num_steps;
  Measured m{.tokens_per_s = {}, .work = work * (1 / tokens), .roofs = probe_roofs(step_bytes), .transport = {}};
  {
    const Span section(Zone::kSection, size, pack_section(SectionRole::kWarmUp, phase));
    warm_up();
  }
  const TransportCount count_before = engine_.dispatcher().transport_count();
  {
    const Span section(Zone::kSection, size, pack_section(SectionRole::kMeasured, phase));
    m.tokens_per_s = tokens_per_second(o_.repetitions, tokens, run);
  }
  m.transport = engine_.dispatcher().transport_count() - count_before;
  const auto probe_again = [&] { m.roofs = best_of(m.roofs, probe_roofs(step_bytes)); };
  probe_again();
  for (int probes = 2; probes < kMostProbes && !m.is_possible(); ++probes) probe_again();
  if (!m.is_possible()) note_impossible(phase, size, m);
  return m;
}

void Bench::note_impossible(Phase phase, int64_t size, const Measured& m) {
  char text[200];
  std::snprintf(text, sizeof text, "%s reaches %.0f %% of a roof; possible: up to %.0f %%", work_name(phase, size).c_str(),
                100 * m.share().nearer(), 100 * kMostShare);
  complaint_ += (complaint_.empty() ? "" : "; ") + std::string(text);
}

void Bench::run_prefill(int64_t length) {
  const auto prefill = [&] {
    long_driver_.prompt(0, length);
    long_driver_.end_requests();
  };
  int64_t num_experts_read = 0;
  {
    const Span section(Zone::kSection, length, pack_section(SectionRole::kWarmUp, Phase::kPrefill));
    num_experts_read = long_driver_.count_experts_read(prefill);
  }
  const int64_t chunk = engine_.scheduler_options().prefill_chunk;
  const Work work = work_.prompt(length, chunk, static_cast<double>(num_experts_read));
  const auto num_steps = static_cast<double>((length + chunk - 1) / chunk);
  const Measured m = measure(Phase::kPrefill, length, num_steps, static_cast<double>(length), work, prefill, prefill);
  if (!o_.json) print_row("prefill", length, m);
  prefill_.push_back(row_json("prompt_tokens", length, m));
}

void Bench::run_decode(int64_t batch) {
  {
    const Span section(Zone::kSection, kDecodePrompt, pack_section(SectionRole::kWarmUp, Phase::kPrefill));
    for (int64_t s = 0; s < batch; ++s) driver_.prompt(s, kDecodePrompt);
  }
  const int64_t warm_up_steps = std::min(o_.decode_tokens, kWarmUpSteps);
  const auto decode = [&](int64_t num_steps) {
    for (int64_t i = 0; i < num_steps; ++i) driver_.decode(batch, kDecodePrompt + i);
  };
  int64_t num_experts_read = 0;
  {
    const Span section(Zone::kSection, batch, pack_section(SectionRole::kWarmUp, Phase::kDecode));
    num_experts_read = driver_.count_experts_read([&] { decode(warm_up_steps); });
  }
  const double experts_a_step = static_cast<double>(num_experts_read) / static_cast<double>(warm_up_steps);
  const auto num_steps = static_cast<double>(o_.decode_tokens);
  const Work work = work_.decode_step(batch, static_cast<double>(kDecodePrompt) + num_steps / 2, experts_a_step) * num_steps;
  const Measured m = measure(
      Phase::kDecode, batch, num_steps, static_cast<double>(batch) * num_steps, work, [&] { decode(warm_up_steps); },
      [&] { decode(o_.decode_tokens); });
  driver_.end_requests();
  if (!o_.json) print_row("decode", batch, m);
  decode_.push_back(row_json("sequences", batch, m));
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
    if (!o_.json) print_gain(batch, gain);
    drafts_.push_back(gain_json(batch, gain));
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
  std::printf("%-8s %6s %10s %10s %10s", "phase", "size", "tokens/s", "min", "max");
  std::printf("   share of what the %s can do (%s)%s\n", roof_ ? "coordinator's threads" : "device", unit_name().c_str(),
              cluster_.num_workers() == 0 ? "" : ", of its own work");
}

void Bench::print_json() {
  ordered_json object{{"model", engine_.config().name},
                      {"dtype", dtype_name(engine_.dtype())},
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
                      {"prefill", prefill_},
                      {"decode", decode_}};
  if (options_.engine.speculation != Speculation{}) object["drafts"] = drafts_;
  std::printf("%s\n", object.dump(-1, ' ', false, ordered_json::error_handler_t::replace).c_str());
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
