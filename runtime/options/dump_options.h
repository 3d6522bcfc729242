#pragma once

#include <filesystem>
#include <vector>

#include "runtime/base/types.h"

namespace CLI {
class App;
}

namespace ferry {

struct DumpOptions {
  std::vector<TokenId> token_ids;
  std::filesystem::path out;
  bool taps = false;
};

void add_dump_options(CLI::App& app, DumpOptions& options);

}  // namespace ferry
