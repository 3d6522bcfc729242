#pragma once

#include <cstdint>
#include <optional>

namespace CLI {
class App;
}

namespace ferry {

struct EngineOptions;

/// Of `ferry inspect`; model, dtype and quantization are in EngineOptions.
struct InspectOptions {
  static constexpr int64_t kMaxWorkers = 4096;

  bool json = false;
  bool verify = false;             // read all files and compare them with their checksums, in place of the rest
  std::optional<int64_t> workers;  // absent: several numbers of them
};

void add_inspect_options(CLI::App& app, InspectOptions& options, EngineOptions& engine);

}  // namespace ferry
