#include "runtime/options/inspect_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/engine_options.h"

namespace ferry {

void add_inspect_options(CLI::App& app, InspectOptions& o, EngineOptions& engine) {
  app.add_option_function<std::string>(
         "DIR", [&engine](const std::string& model) { engine.model = checkpoint_named(model); },
         "checkpoint folder, or 'demo' for the one that comes with Ferry")
      ->required();
  app.add_flag("--json", o.json, "print one JSON object");
}

}  // namespace ferry
