#pragma once

#include <string>

namespace CLI {
class App;
}

namespace ferry {

struct ServeOptions;

/// Adds the options of `ferry serve`: ports, captures, who may use the ports, and every bound of ServerLimits.
void add_serve_options(CLI::App& app, ServeOptions& options);

/// What no single option can tell. Empty if all is well.
std::string check_together(const ServeOptions& options);

}  // namespace ferry
