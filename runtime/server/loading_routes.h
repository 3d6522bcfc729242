#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/server/http/router.h"

namespace ferry {

/// How far a server is with reading the weights.
struct LoadingState {
  int64_t done_bytes = 0;
  int64_t total_bytes = 0;  // 0: not known yet
  double elapsed_s = 0;
};

/// Called on the I/O thread: must be quick and must not throw.
using LoadingProbe = std::function<LoadingState()>;

/// A path of an API that has its own form of errors.
struct RewordedPath {
  std::string path;
  HttpRewording reword = nullptr;
};

/// Adds the routes of a server whose model is being loaded. Every path answers 503 with Retry-After:
///
///   /health, /ping      {"status": "loading", "percent": 30, "loaded_bytes": …, "total_bytes": …}, for anybody
///   all others          an error in the form of OpenAI's API, or in that of `reworded` and what is below
void add_loading_routes(HttpRouter& router, LoadingProbe probe, const std::vector<RewordedPath>& reworded);

}  // namespace ferry
