#include "launch/traced_run.h"

#include <cstdio>
#include <string>
#include <utility>

#include "kernels/roof.h"
#include "profiler/export/capture_files.h"
#include "profiler/recorder.h"
#include "runtime/actions/advise.h"
#include "runtime/base/available_memory.h"
#include "runtime/base/error.h"
#include "runtime/base/peak_memory.h"

namespace ferry {

void note_roofs(Engine& engine) {
  constexpr int64_t kStreamBytes = int64_t{512} << 20, kSpareBytes = int64_t{2} << 30;
  if (engine.device() != nullptr || available_memory_bytes() < kStreamBytes + kSpareBytes) return;
  const MeasurementMemory measurement;
  RoofProbe probe(engine.pool(), kStreamBytes);
  const std::string matmul = engine.matmul().name();
  const DType factors = engine.quantization().experts ? DType::kI8 : engine.dtype();
  engine.set_roofs(probe.read_bytes_per_s(kStreamBytes), probe.flops_per_s(factors, matmul));
}

TraceLevel trace_level(const Options& options) {
  return options.engine.profile == "2" ? TraceLevel::kThreads : TraceLevel::kOperators;
}

void start_trace(Engine& engine, const Options& options) {
  recorder().register_thread("engine");
  engine.trace().start({.level = trace_level(options), .routing = options.engine.trace_routing});
}

Capture finish_trace(Engine& engine) {
  engine.trace().stop();
  while (engine.trace().work(false)) {
  }
  std::optional<Capture> capture = engine.trace().take();
  if (!capture) throw Error(ErrorCode::kInternal, "the capture did not come to an end");
  return std::move(*capture);
}

MeasuredCost measure_recording_cost(Engine& engine, TraceLevel level, int64_t num_pairs, const std::function<double()>& rate) {
  recorder().register_thread("engine");
  const RecordedWork work{
      .start = [&] { engine.trace().start({.level = level}); }, .stop = [&] { finish_trace(engine); }, .rate = rate};
  return measure_pairs(work, num_pairs);
}

void write_trace(const std::filesystem::path& directory, Capture capture) {
  const std::size_t num_ranks = capture.ranks.size();
  write_capture_files(directory, std::move(capture), find_and_advise);
  std::fprintf(stderr, "ferry: timeline of %zu rank%s in %s; open report.html, or trace.pftrace in Perfetto\n", num_ranks,
               num_ranks == 1 ? "" : "s", directory.c_str());
}

}  // namespace ferry
