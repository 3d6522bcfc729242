#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "kernels/roof_probe.h"
#include "launch/bench_driver.h"
#include "launch/commands.h"
#include "launch/roof.h"
#include "launch/traced_run.h"
#include "runtime/base/error.h"
#include "runtime/engine.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr int64_t kDecodePrompt = BenchOptions::kDecodePrompt;

/// Weights that a step reads and multiplies that a token costs, counted from the shapes.
struct WorkCount {
  double fixed_bytes = 0;      // read in every step: mixers, routers, shared experts, lm_head
  double expert_bytes = 0;     // of one routed expert
  double state_bytes = 0;      // DeltaNet state read and written per sequence
  double flops_per_token = 0;  // of every token of a prompt
  double head_flops = 0;       // of a token whose logits are wanted

  /// Bytes of a decode step of `batch` sequences, with the number of distinct experts that uniform routing hits.
  double decode_bytes(const ModelConfig& c, int64_t batch) const {
    const auto experts = static_cast<double>(c.moe.num_experts);
    const double hit = experts * (1.0 - std::pow(1.0 - static_cast<double>(c.moe.top_k) / experts, static_cast<double>(batch)));
    return fixed_bytes + static_cast<double>(c.num_layers()) * hit * expert_bytes + static_cast<double>(batch) * state_bytes;
  }
};

WorkCount count_work(const ModelConfig& c, DType dtype) {
  const auto bytes = static_cast<double>(dtype_bytes(dtype));
  const auto h = static_cast<double>(c.hidden_dim);
  const DeltaNetConfig& d = c.deltanet;
  const AttentionConfig& a = c.attention;
  const double linear_layers = static_cast<double>(c.num_layers_of(LayerKind::kLinearAttention));
  const double full_layers = static_cast<double>(c.num_layers_of(LayerKind::kFullAttention));
  const double deltanet = h * static_cast<double>(d.conv_channels() + 2 * d.value_dim() + 2 * d.num_v_heads);
  const double attention = h * static_cast<double>(a.head_dim * (3 * a.num_heads + 2 * a.num_kv_heads));
  const double shared = h * static_cast<double>(c.moe.num_experts + 3 * c.moe.shared_intermediate_dim + 1);
  const double expert = 3.0 * h * static_cast<double>(c.moe.intermediate_dim);
  const double head = h * static_cast<double>(c.vocab_size);
  const double layers = static_cast<double>(c.num_layers());
  const double trunk = linear_layers * deltanet + full_layers * attention + layers * shared;
  return {.fixed_bytes = (trunk + head) * bytes,
          .expert_bytes = expert * bytes,
          .state_bytes = linear_layers * 2 * 4 * static_cast<double>(d.num_v_heads * d.k_dim * d.v_dim),
          .flops_per_token = 2 * (trunk + layers * static_cast<double>(c.moe.top_k) * expert),
          .head_flops = 2 * head};
}

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

/// A rate and the roof that was measured before and after it, which has the better word.
struct Measured {
  Sample tokens_per_s;
  double roof_per_s = 0;      // bytes read or operations
  double work_per_token = 0;  // in the roof's unit

  double share() const { return tokens_per_s.median * work_per_token / roof_per_s; }
};

template <class Probe, class Rate>
Measured measure_under(Probe&& probe, double work_per_token, Rate&& rate) {
  const double before = probe();
  const Sample sample = rate();
  return {sample, std::max(before, probe()), work_per_token};
}

void print_row(const char* what, int64_t size, const Measured& m, const char* unit) {
  std::printf("%-8s %6lld %10.1f %10.1f %10.1f   %5.1f %% of %.1f %s\n", what, static_cast<long long>(size),
              m.tokens_per_s.median, m.tokens_per_s.min, m.tokens_per_s.max, 100 * m.share(), m.roof_per_s * 1e-9, unit);
  std::fflush(stdout);
}

ordered_json row_json(const char* size_name, int64_t size, const Measured& m, const char* roof_name) {
  return {{size_name, size},
          {"tokens_per_s", {{"median", m.tokens_per_s.median}, {"min", m.tokens_per_s.min}, {"max", m.tokens_per_s.max}}},
          {roof_name, m.roof_per_s},
          {"share_of_roof", m.share()}};
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
      engine_.set_roofs(roof_.read_bytes_per_s(), roof_.flops_per_s(engine_.dtype()));
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
  void run_prefill(int64_t length);
  void run_decode(int64_t batch);
  void print_head();
  void print_json();

  const Options& options_;
  const BenchOptions& o_;
  Cluster& cluster_;
  Engine engine_;
  RoofProbe roof_;
  BenchDriver long_driver_{engine_, longest()};
  BenchDriver driver_{engine_, kDecodePrompt + o_.decode_tokens + 1};
  WorkCount work_ = count_work(engine_.config(), engine_.dtype());
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

void Bench::run_prefill(int64_t length) {
  const auto prefill = [&] {
    long_driver_.prompt(0, length);
    long_driver_.end_requests();
  };
  prefill();  // warm-up
  const double flops = work_.flops_per_token + work_.head_flops / static_cast<double>(length);
  const Measured m = measure_under([&] { return roof_.flops_per_s(engine_.dtype()); }, flops,
                                   [&] { return tokens_per_second(o_.repetitions, static_cast<double>(length), prefill); });
  if (!o_.json) print_row("prefill", length, m, "GFLOP/s");
  prefill_.push_back(row_json("prompt_tokens", length, m, "flops_per_s"));
}

void Bench::run_decode(int64_t batch) {
  for (int64_t s = 0; s < batch; ++s) driver_.prompt(s, kDecodePrompt);
  driver_.decode(batch, kDecodePrompt);  // warm-up
  const double bytes = work_.decode_bytes(engine_.config(), batch) / static_cast<double>(batch);
  const Measured m =
      measure_under([&] { return roof_.read_bytes_per_s(); }, bytes,
                    [&] {
                      return tokens_per_second(o_.repetitions, static_cast<double>(batch * o_.decode_tokens), [&] {
                        for (int64_t i = 0; i < o_.decode_tokens; ++i) driver_.decode(batch, kDecodePrompt + i);
                      });
                    });
  driver_.end_requests();
  if (!o_.json) print_row("decode", batch, m, "GB/s");
  decode_.push_back(row_json("sequences", batch, m, "read_bytes_per_s"));
}

void Bench::print_head() {
  const std::string experts = cluster_.num_workers() == 0
                                  ? "in process"
                                  : "on " + std::to_string(cluster_.num_workers()) + " workers (" + cluster_.transport() + ")";
  std::printf("%s, %s, %d threads, experts %s, %s + %s\n", engine_.config().name.c_str(), dtype_name(engine_.dtype()),
              engine_.pool().num_threads(), experts.c_str(), engine_.kernels_name(), engine_.matmul().name());
  std::printf("%-8s %6s %10s %10s %10s   roof of the coordinator's threads (%s)\n", "phase", "size", "tokens/s", "min", "max",
              multiply_unit(engine_.dtype()));
}

void Bench::print_json() {
  const ordered_json object{{"model", engine_.config().name},
                            {"dtype", dtype_name(engine_.dtype())},
                            {"threads", engine_.pool().num_threads()},
                            {"expert_workers", cluster_.num_workers()},
                            {"transport", cluster_.transport()},
                            {"kernels", engine_.kernels_name()},
                            {"matmul", engine_.matmul().name()},
                            {"multiply_unit", multiply_unit(engine_.dtype())},
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
