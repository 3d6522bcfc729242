#include "runtime/options/devices_options.h"

#include <CLI/CLI.hpp>

namespace ferry {

void add_devices_options(CLI::App& app, DevicesOptions& o) { app.add_flag("--json", o.json, "print one JSON object"); }

}  // namespace ferry
