#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/types.h"

namespace CLI {
class App;
}

namespace ferry {

struct EngineOptions;

/// Of `ferry tokenize`; the model is in EngineOptions. At most one of the three; none: standard input.
struct TokenizeOptions {
  std::optional<std::string> text;
  std::filesystem::path file;
  std::vector<TokenId> ids;  // back to text
  bool bare = false;         // Tokenizer::encode, not encode_prompt
  bool json = false;
};

void add_tokenize_options(CLI::App& app, TokenizeOptions& options, EngineOptions& engine);

/// What no single option can tell. Empty if all is well.
std::string check_together(const TokenizeOptions& options);

}  // namespace ferry
