#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>

#include "launch/commands.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint_packer.h"
#include "runtime/model/config.h"
#include "runtime/model/weights_loader.h"

namespace ferry {
namespace {

constexpr double kGb = 1e-9;                           // GB of a byte
constexpr std::chrono::milliseconds kTellPeriod{200};  // between two progress lines

volatile std::sig_atomic_t interrupting_signal = 0;  // 0: none came

void note_signal(int signal) { interrupting_signal = signal; }

/// Tells in one line on stderr, rewritten in place, where somebody looks. A signal to end throws Error{kCancelled} here, so
/// that what was written goes again.
std::function<void(int64_t, int64_t)> make_progress() {
  std::signal(SIGINT, note_signal);
  std::signal(SIGTERM, note_signal);
  const auto start = std::chrono::steady_clock::now();
  return [start, told = start, is_watched = isatty(STDERR_FILENO) != 0](int64_t done, int64_t total) mutable {
    if (interrupting_signal != 0) throw Error(ErrorCode::kCancelled, "interrupted: nothing was written");
    if (!is_watched) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - told < kTellPeriod && done != total) return;
    told = now;
    std::fprintf(stderr, "\rferry: quantised %.2f of %.2f GB in %.1f s\033[K%s", static_cast<double>(done) * kGb,
                 static_cast<double>(total) * kGb, std::chrono::duration<double>(now - start).count(),
                 done == total ? "\n" : "");
  };
}

}  // namespace

int run_quantize(const Options& options) {
  const EngineOptions& engine = options.engine;
  const auto start = std::chrono::steady_clock::now();
  const ModelConfig config = load_config(engine.model);
  const DType dtype = engine.dtype.value_or(config.dtype);
  const bool is_packed = read_packed_mark(engine.model).has_value();  // pack_checkpoint() refuses it
  const Quantization quantization =
      is_packed ? *engine.quantization : resolve_quantization(Checkpoint::open(engine.model), config, *engine.quantization);
  ThreadPool pool(engine.threads > 0 ? engine.threads : available_cores());
  const PackSummary summary =
      pack_checkpoint(engine.model, options.quantize.out, quantized_matrices(engine.model, quantization), pool,
                      {.dtype = dtype, .quantization = quantization, .progress = make_progress()});
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("ferry: %s holds %s: %.2f GB made of %.2f GB in %.1f s\n", options.quantize.out.c_str(),
              quantization_name(quantization).c_str(), static_cast<double>(summary.written_bytes) * kGb,
              static_cast<double>(summary.read_bytes) * kGb, taken.count());
  return 0;
}

}  // namespace ferry
