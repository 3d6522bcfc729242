#pragma once

namespace CLI {
class App;
}

namespace ferry {

struct PolicyOptions;

/// --policy (by vLLM's name --scheduling-policy), --queue-order, --aging-rate and --decode-slo-ms.
void add_scheduling_options(CLI::App& app, PolicyOptions& options);

}  // namespace ferry
