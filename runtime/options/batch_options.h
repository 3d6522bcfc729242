#pragma once

#include <cstdint>
#include <filesystem>

#include "runtime/options/api_options.h"

namespace CLI {
class App;
}

namespace ferry {

struct BatchOptions {
  std::filesystem::path input, output;
  int64_t concurrency = 0;  // lines that are worked on at once; 0: twice --max-seqs
  ApiOptions api;
};

/// What to answer, where to, and how the API reads requests.
void add_batch_options(CLI::App& app, BatchOptions& options);

}  // namespace ferry
