#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/options/api_options.h"
#include "runtime/options/step_archive_options.h"

namespace CLI {
class App;
}

namespace ferry {

struct BatchOptions {
  std::filesystem::path input, output;
  int64_t concurrency = 0;  // lines that are worked on at once; 0: twice --max-seqs
  ApiOptions api;
  StepArchiveOptions archive;
};

/// What to answer, where to, how the API reads requests, and which steps are kept.
void add_batch_options(CLI::App& app, BatchOptions& options);

/// What no single option can tell. Empty if all is well.
std::string check_together(const BatchOptions& options, const EngineOptions& engine);

}  // namespace ferry
