#pragma once

namespace CLI {
class App;
}

namespace ferry {

struct EngineOptions;

/// Of `ferry inspect`; the model is in EngineOptions.
struct InspectOptions {
  bool json = false;
};

void add_inspect_options(CLI::App& app, InspectOptions& options, EngineOptions& engine);

}  // namespace ferry
