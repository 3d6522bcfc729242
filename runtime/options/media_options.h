#pragma once

#include <cstdint>

#include "runtime/vision/picture.h"

namespace CLI {
class App;
}

namespace ferry {

/// Pictures and videos of prompts.
struct MediaOptions {
  bool is_wanted = false;     // whether this run may be given any: only then the vision tower is loaded
  int64_t max_tokens = 4096;  // of a picture or a video's step of time, larger ones are scaled down to it; 0: none are taken
  int64_t cache_bytes = int64_t{256} << 20;  // of embeddings kept for what comes again
  int64_t open_bytes = int64_t{1} << 30;     // of pixels that all open requests hold
  PictureLimits limits;                      // of one file
};

/// Under which --help lists them.
inline constexpr const char* kMediaGroup = "Pictures and videos";

/// All but is_wanted.
void add_media_options(CLI::App& app, MediaOptions& options);

}  // namespace ferry
