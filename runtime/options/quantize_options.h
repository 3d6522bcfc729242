#pragma once

#include <filesystem>
#include <string>

namespace CLI {
class App;
}

namespace ferry {

struct EngineOptions;

/// Of `ferry quantize`; model, dtype, threads and quantization (of at least one part) are in EngineOptions.
struct QuantizeOptions {
  std::filesystem::path out;  // folder
};

void add_quantize_options(CLI::App& app, QuantizeOptions& options, EngineOptions& engine);

/// At least one part must be quantised. Empty if all is well.
std::string check_together(const QuantizeOptions& options, const EngineOptions& engine);

}  // namespace ferry
