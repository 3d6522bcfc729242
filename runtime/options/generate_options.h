#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/schedule/request.h"

namespace CLI {
class App;
}

namespace ferry {

struct GenerateOptions {
  std::optional<std::string> prompt, chat;  // exactly one of these
  std::vector<TokenId> token_ids;           // or this
  std::vector<std::string> images;          // files, in order
  std::vector<std::string> videos;          // one folder of frames each, or files that are the frames of one
  std::optional<double> fps;                // of the videos
  SamplingParams sampling;
  enum class ThinkingMode { kDefault, kOn, kOff } thinking = ThinkingMode::kDefault;
  bool json = false;

  bool has_media() const { return !images.empty() || !videos.empty(); }
};

/// What to complete and how.
void add_generate_options(CLI::App& app, GenerateOptions& options);

/// What no single option can tell. Empty if all is well.
std::string check_together(const GenerateOptions& options);

}  // namespace ferry
