#include "launch/traced_run.h"

#include <cstdio>
#include <utility>

#include "profiler/export/capture_files.h"
#include "profiler/recorder.h"
#include "runtime/actions/advise.h"
#include "runtime/base/error.h"

namespace ferry {

void start_trace(Engine& engine, const Options& options) {
  recorder().register_thread("engine");
  engine.trace().start({.level = options.engine.profile == "2" ? TraceLevel::kThreads : TraceLevel::kOperators,
                        .routing = options.engine.trace_routing});
}

Capture finish_trace(Engine& engine) {
  engine.trace().stop();
  while (engine.trace().work(false)) {
  }
  std::optional<Capture> capture = engine.trace().take();
  if (!capture) throw Error(ErrorCode::kInternal, "the capture did not come to an end");
  return std::move(*capture);
}

void write_trace(const std::filesystem::path& directory, Capture capture) {
  const std::size_t num_ranks = capture.ranks.size();
  write_capture_files(directory, std::move(capture), find_and_advise);
  std::fprintf(stderr, "ferry: timeline of %zu rank%s in %s; open report.html, or trace.pftrace in Perfetto\n", num_ranks,
               num_ranks == 1 ? "" : "s", directory.c_str());
}

}  // namespace ferry
