#include "runtime/options/inspect_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/engine_options.h"
#include "runtime/options/option_checks.h"

namespace ferry {

void add_inspect_options(CLI::App& app, InspectOptions& o, EngineOptions& engine) {
  app.add_option_function<std::string>(
         "DIR", [&engine](const std::string& model) { engine.model = checkpoint_named(model); },
         "checkpoint folder, or 'demo' for the one that comes with Ferry")
      ->required();
  add_quantization(app, engine,
                   "as ferry serve takes it; default: none, native (if there are codes), w8a8 and w4a8, or what the "
                   "folder of ferry quantize holds");
  add_dtype(app, engine);
  add_kv_cache_dtype(app, engine);
  app.add_option_function<int64_t>(
         "--workers", [&o](int64_t n) { o.workers = n; }, "ranks that hold experts; default: several")
      ->check(integer_in(0, InspectOptions::kMaxWorkers));
  app.add_flag("--json", o.json, "print one JSON object");
  CLI::Option* verify = app.add_flag("--verify", o.verify, "read all files and compare them with their checksums");
  for (const char* other : {"--quantize", "--dtype", "--kv-cache-dtype", "--workers"}) verify->excludes(app.get_option(other));
}

}  // namespace ferry
