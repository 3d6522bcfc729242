#pragma once

namespace CLI {
class App;
}

namespace ferry {

/// Of `ferry devices`.
struct DevicesOptions {
  bool json = false;
};

void add_devices_options(CLI::App& app, DevicesOptions& options);

}  // namespace ferry
