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
#include "launch/commands.h"
#include "launch/traced_run.h"
#include "launch/work_count.h"
#include "runtime/base/error.h"
#include "runtime/engine.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr int64_t kDecodePrompt = BenchOptions::kDecodePrompt;

struct Sample {
  double min = 0, median = 0, max = 0;
};

Sample summarise(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return {values.front(), n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2, values.back()};
}

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
  const std::string alone = row_bytes(driver.prefill(s, kDecodePrompt, 1), 0);
  for (int64_t i = 0; i < batch; ++i) driver.prompt(i, kDecodePrompt);
  const ConstMatrixView logits = driver.decode(batch, kDecodePrompt);
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

/// What the machine can do at best.
struct Roofs {
  double read_bytes_per_s = 0;
  double flops_per_s = 0;
};

/// Tokens per second, the work that a token takes, and roofs measured before and after, of which the better has the word.
struct Measured {
  Sample tokens_per_s;
  WorkCount::Work work;  // of a token
  Roofs roofs;
  TransportCount transport;  // of all repetitions

  double read_share() const { return tokens_per_s.median * work.bytes / roofs.read_bytes_per_s; }
  double flops_share() const { return tokens_per_s.median * work.flops / roofs.flops_per_s; }
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
  std::printf("%-8s %6lld %10.1f %10.1f %10.1f   %5.1f %% of %5.1f GB/s   %5.1f %% of %.0f GFLOP/s\n", what,
              static_cast<long long>(size), m.tokens_per_s.median, m.tokens_per_s.min, m.tokens_per_s.max, 100 * m.read_share(),
              m.roofs.read_bytes_per_s * 1e-9, 100 * m.flops_share(), m.roofs.flops_per_s * 1e-9);
  print_transport(m.transport);
  std::fflush(stdout);
}

ordered_json row_json(const char* size_name, int64_t size, const Measured& m) {
  return {{size_name, size},
          {"tokens_per_s", {{"median", m.tokens_per_s.median}, {"min", m.tokens_per_s.min}, {"max", m.tokens_per_s.max}}},
          {"bytes_per_token", m.work.bytes},
          {"flops_per_token", m.work.flops},
          {"read_bytes_per_s", m.roofs.read_bytes_per_s},
          {"flops_per_s", m.roofs.flops_per_s},
          {"share_of_read", m.read_share()},
          {"share_of_flops", m.flops_share()},
          {"share_of_roof", std::max(m.read_share(), m.flops_share())},
          {"transport_per_layer", transport_json(m.transport)}};
}

/// The measurements, one after the other, on an engine of their own.
class Bench {
 public:
  Bench(const Options& options, Cluster& cluster)
      : options_(options), o_(options.bench), cluster_(cluster), engine_(options.engine, cluster), roof_(engine_.pool()) {
    check_limits();
  }

  /// Prints what it finds; the capture, if one was asked for.
  std::optional<Capture> run() {
    for (const int64_t batch : o_.batches) verify(driver_, batch);
    driver_.end_requests();
    const bool is_traced = !options_.engine.trace.empty();
    if (is_traced) {
      const Roofs roofs = probe_roofs();
      engine_.set_roofs(roofs.read_bytes_per_s, roofs.flops_per_s);
      start_trace(engine_, options_);
    }
    if (!o_.json) print_head();
    for (const int64_t length : o_.prompt_lengths) run_prefill(length);
    for (const int64_t batch : o_.batches) run_decode(batch);
    driver_.end_requests();
    std::optional<Capture> capture;
    if (is_traced) capture = finish_trace(engine_);
    if (o_.json) print_json();
    return capture;
  }

 private:
  int64_t longest() const {
    return std::max(*std::max_element(o_.prompt_lengths.begin(), o_.prompt_lengths.end()),
                    kDecodePrompt + o_.decode_tokens + 1);
  }
  void check_limits() const;
  DType factor_dtype() const;
  Roofs probe_roofs();
  template <class Fn>
  Measured measure(double tokens, const WorkCount::Work& work, Fn&& run);
  void run_prefill(int64_t length);
  void run_decode(int64_t batch);
  std::string weights_name() const {
    return engine_.quantization().any() ? quantization_name(engine_.quantization()) : dtype_name(engine_.dtype());
  }
  void print_head();
  void print_json();

  const Options& options_;
  const BenchOptions& o_;
  Cluster& cluster_;
  Engine engine_;
  RoofProbe roof_;
  BenchDriver long_driver_{engine_, longest()};
  BenchDriver driver_{engine_, kDecodePrompt + o_.decode_tokens + 1};
  WorkCount work_{engine_.config(), engine_.quantization(), engine_.dtype()};
  ordered_json prefill_ = ordered_json::array(), decode_ = ordered_json::array();
};

void Bench::check_limits() const {
  if (longest() > sequence_capacity(engine_.scheduler_options())) {
    throw_invalid("bench: sequences of " + std::to_string(longest()) + " tokens; allowed: up to " +
                  std::to_string(sequence_capacity(engine_.scheduler_options())) + " with this --memory and --max-context");
  }
  const int64_t largest_batch = *std::max_element(o_.batches.begin(), o_.batches.end());
  if (largest_batch > driver_.max_sequences()) {
    throw_invalid("-b is " + std::to_string(largest_batch) + "; allowed: up to " + std::to_string(driver_.max_sequences()) +
                  " with this --memory");
  }
}

/// What most products multiply: codes if the routed experts are quantised.
DType Bench::factor_dtype() const { return engine_.quantization().experts ? DType::kI8 : engine_.dtype(); }

Roofs Bench::probe_roofs() { return {roof_.read_bytes_per_s(), roof_.flops_per_s(factor_dtype(), engine_.matmul().name())}; }

/// Times `run`, which computes `tokens` tokens that take `work` together.
template <class Fn>
Measured Bench::measure(double tokens, const WorkCount::Work& work, Fn&& run) {
  const Roofs before = probe_roofs();
  const TransportCount count_before = engine_.dispatcher().transport_count();
  const Sample sample = tokens_per_second(o_.repetitions, tokens, run);
  const TransportCount transport = engine_.dispatcher().transport_count() - count_before;
  const Roofs after = probe_roofs();
  return {sample,
          {work.bytes / tokens, work.flops / tokens},
          {std::max(before.read_bytes_per_s, after.read_bytes_per_s), std::max(before.flops_per_s, after.flops_per_s)},
          transport};
}

void Bench::run_prefill(int64_t length) {
  const auto prefill = [&] {
    long_driver_.prompt(0, length);
    long_driver_.end_requests();
  };
  prefill();  // warm-up
  const WorkCount::Work work = work_.prompt(length, engine_.scheduler_options().prefill_chunk);
  const Measured m = measure(static_cast<double>(length), work, prefill);
  if (!o_.json) print_row("prefill", length, m);
  prefill_.push_back(row_json("prompt_tokens", length, m));
}

void Bench::run_decode(int64_t batch) {
  for (int64_t s = 0; s < batch; ++s) driver_.prompt(s, kDecodePrompt);
  driver_.decode(batch, kDecodePrompt);  // warm-up
  const auto tokens = static_cast<double>(batch * o_.decode_tokens);
  WorkCount::Work work =
      work_.decode_step(batch, static_cast<double>(kDecodePrompt) + static_cast<double>(o_.decode_tokens) / 2);
  work.bytes *= static_cast<double>(o_.decode_tokens);
  work.flops *= static_cast<double>(o_.decode_tokens);
  const Measured m = measure(tokens, work, [&] {
    for (int64_t i = 0; i < o_.decode_tokens; ++i) driver_.decode(batch, kDecodePrompt + i);
  });
  driver_.end_requests();
  if (!o_.json) print_row("decode", batch, m);
  decode_.push_back(row_json("sequences", batch, m));
}

void Bench::print_head() {
  const std::string experts = cluster_.num_workers() == 0
                                  ? "in process"
                                  : "on " + std::to_string(cluster_.num_workers()) + " workers (" + cluster_.transport() + ")";
  std::printf("%s, %s, weights %s, %d threads, experts %s, %s + %s\n", engine_.config().name.c_str(),
              dtype_name(engine_.dtype()), weights_name().c_str(), engine_.pool().num_threads(), experts.c_str(),
              engine_.kernels_name(), engine_.matmul().name());
  std::printf("%-8s %6s %10s %10s %10s   share of what the coordinator's threads can do (%s)\n", "phase", "size", "tokens/s",
              "min", "max", multiply_unit(factor_dtype(), engine_.matmul().name()));
}

void Bench::print_json() {
  const ordered_json object{{"model", engine_.config().name},
                            {"dtype", dtype_name(engine_.dtype())},
                            {"weights", weights_name()},
                            {"threads", engine_.pool().num_threads()},
                            {"expert_workers", cluster_.num_workers()},
                            {"transport", cluster_.transport()},
                            {"kernels", engine_.kernels_name()},
                            {"matmul", engine_.matmul().name()},
                            {"multiply_unit", multiply_unit(factor_dtype(), engine_.matmul().name())},
                            {"prefill", prefill_},
                            {"decode", decode_}};
  std::printf("%s\n", object.dump().c_str());
}

}  // namespace

int run_bench(const Options& options, Cluster& cluster) {
  std::optional<Capture> capture = Bench(options, cluster).run();  // the workers go home before files are written
  if (capture) write_trace(options.engine.trace, std::move(*capture));
  return 0;
}

}  // namespace ferry
