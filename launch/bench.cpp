#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "kernels/roof_probe.h"
#include "launch/commands.h"
#include "launch/roof.h"
#include "runtime/base/error.h"
#include "runtime/engine.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr int64_t kDecodePrompt = BenchOptions::kDecodePrompt;

/// Drives the engine without requests: sequence s lives in slot s and in its own blocks.
class BenchDriver {
 public:
  BenchDriver(Engine& engine, int64_t tokens_per_sequence) : engine_(engine) {
    const SchedulerOptions& limits = engine.scheduler_options();
    blocks_per_sequence_ = (tokens_per_sequence + limits.block_tokens - 1) / limits.block_tokens;
    blocks_.resize(static_cast<std::size_t>(limits.num_blocks));
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  int64_t max_sequences() const {
    return std::min<int64_t>(engine_.scheduler_options().max_running,
                             static_cast<int64_t>(blocks_.size()) / blocks_per_sequence_);
  }

  /// Computes tokens [past, past + count) of sequence `s`; the ids are a fixed function of place. Returns the last row's
  /// logits.
  ConstMatrixView prefill(int64_t s, int64_t past, int64_t count) {
    rows_.clear();
    add_rows(s, past, count);
    return forward({{0, count, past}}, {static_cast<int32_t>(count - 1)}, {static_cast<int32_t>(s)});
  }
  /// A whole prompt in the pieces that serving would use.
  ConstMatrixView prompt(int64_t s, int64_t num_prompt) {
    engine_.recurrent_state().reset(s);
    ConstMatrixView logits;
    const SchedulerOptions& limits = engine_.scheduler_options();
    for (int64_t done = 0; done < num_prompt;) {
      const int64_t piece = next_prefill_piece(num_prompt, done, limits.prefill_chunk, limits.token_budget);
      logits = prefill(s, done, piece);
      done += piece;
    }
    return logits;
  }
  /// One token of each of the sequences 0 ‥ batch-1, which all hold `past` tokens.
  ConstMatrixView decode(int64_t batch, int64_t past) {
    rows_.clear();
    std::vector<SequenceSpan> spans;
    std::vector<int32_t> logit_rows, slots;
    for (int64_t s = 0; s < batch; ++s) {
      add_rows(s, past, 1);
      spans.push_back({s, 1, past});
      logit_rows.push_back(static_cast<int32_t>(s));
      slots.push_back(static_cast<int32_t>(s));
    }
    return forward(spans, logit_rows, slots);
  }

 private:
  struct Row {
    TokenId token;
    int32_t position;
  };

  void add_rows(int64_t s, int64_t past, int64_t count) {
    const int64_t vocab = engine_.config().vocab_size;
    for (int64_t i = past; i < past + count; ++i)
      rows_.push_back({static_cast<TokenId>((s * 7919 + i * 104729 + 17) % vocab), static_cast<int32_t>(i)});
  }

  ConstMatrixView forward(const std::vector<SequenceSpan>& spans, const std::vector<int32_t>& logit_rows,
                          const std::vector<int32_t>& slots) {
    std::vector<TokenId> ids;
    std::vector<int32_t> positions;
    std::vector<const int32_t*> tables;
    for (const Row& row : rows_) ids.push_back(row.token);
    for (int axis = 0; axis < 3; ++axis) {
      for (const Row& row : rows_) positions.push_back(row.position);
    }
    for (const int32_t slot : slots) tables.push_back(blocks_.data() + slot * blocks_per_sequence_);
    return engine_.forward({.token_ids = ids,
                            .positions = positions,
                            .sequences = spans,
                            .block_tables = tables,
                            .state_slots = slots,
                            .logit_rows = logit_rows,
                            .delta_chunk = prefill_quantum(engine_.scheduler_options().prefill_chunk)});
  }

  Engine& engine_;
  int64_t blocks_per_sequence_ = 0;
  std::vector<int32_t> blocks_;
  std::vector<Row> rows_;
};

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

}  // namespace

int run_bench(const Options& options, Cluster& cluster) {
  const BenchOptions& o = options.bench;
  Engine engine(options.engine, cluster);
  const ModelConfig& config = engine.config();
  const int64_t longest =
      std::max(*std::max_element(o.prompt_lengths.begin(), o.prompt_lengths.end()), kDecodePrompt + o.decode_tokens + 1);
  if (longest > sequence_capacity(engine.scheduler_options())) {
    throw_invalid("bench: sequences of " + std::to_string(longest) + " tokens; allowed: up to " +
                  std::to_string(sequence_capacity(engine.scheduler_options())) + " with this --memory and --max-context");
  }
  BenchDriver long_driver(engine, longest);
  BenchDriver driver(engine, kDecodePrompt + o.decode_tokens + 1);
  const int64_t largest_batch = *std::max_element(o.batches.begin(), o.batches.end());
  if (largest_batch > driver.max_sequences()) {
    throw_invalid("-b is " + std::to_string(largest_batch) + "; allowed: up to " + std::to_string(driver.max_sequences()) +
                  " with this --memory");
  }
  for (const int64_t batch : o.batches) verify(driver, batch);

  RoofProbe roof(engine.pool());
  const WorkCount work = count_work(config, engine.dtype());
  if (!o.json) {
    std::printf("%s, %s, %d threads, experts %s, %s + %s\n", config.name.c_str(), dtype_name(engine.dtype()),
                engine.pool().num_threads(),
                cluster.num_workers() == 0
                    ? "in process"
                    : ("on " + std::to_string(cluster.num_workers()) + " workers (" + cluster.transport() + ")").c_str(),
                engine.kernels_name(), engine.matmul().name());
    std::printf("%-8s %6s %10s %10s %10s   roof of the coordinator's threads (%s)\n", "phase", "size", "tokens/s", "min", "max",
                multiply_unit(engine.dtype()));
  }
  ordered_json prefill = ordered_json::array(), decode = ordered_json::array();
  for (const int64_t length : o.prompt_lengths) {
    long_driver.prompt(0, length);  // warm-up
    const double flops = work.flops_per_token + work.head_flops / static_cast<double>(length);
    const Measured m = measure_under(
        [&] { return roof.flops_per_s(engine.dtype()); }, flops,
        [&] { return tokens_per_second(o.repetitions, static_cast<double>(length), [&] { long_driver.prompt(0, length); }); });
    if (!o.json) print_row("prefill", length, m, "GFLOP/s");
    prefill.push_back(row_json("prompt_tokens", length, m, "flops_per_s"));
  }
  for (const int64_t batch : o.batches) {
    for (int64_t s = 0; s < batch; ++s) driver.prompt(s, kDecodePrompt);
    driver.decode(batch, kDecodePrompt);  // warm-up
    const double bytes = work.decode_bytes(config, batch) / static_cast<double>(batch);
    const Measured m =
        measure_under([&] { return roof.read_bytes_per_s(); }, bytes,
                      [&] {
                        return tokens_per_second(o.repetitions, static_cast<double>(batch * o.decode_tokens), [&] {
                          for (int64_t i = 0; i < o.decode_tokens; ++i) driver.decode(batch, kDecodePrompt + i);
                        });
                      });
    if (!o.json) print_row("decode", batch, m, "GB/s");
    decode.push_back(row_json("sequences", batch, m, "read_bytes_per_s"));
  }
  if (o.json) {
    const ordered_json object{{"model", config.name},
                              {"dtype", dtype_name(engine.dtype())},
                              {"threads", engine.pool().num_threads()},
                              {"expert_workers", cluster.num_workers()},
                              {"transport", cluster.transport()},
                              {"kernels", engine.kernels_name()},
                              {"matmul", engine.matmul().name()},
                              {"multiply_unit", multiply_unit(engine.dtype())},
                              {"prefill", prefill},
                              {"decode", decode}};
    std::printf("%s\n", object.dump().c_str());
  }
  return 0;
}

}  // namespace ferry
