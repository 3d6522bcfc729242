#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "runtime/options/server_limits.h"
#include "runtime/server/picture_fetch.h"

namespace ferry {

/// How far making a prompt may go.
struct PromptTask {
  const ServerLimits& limits;
  std::function<void()> check_in;  // called now and then; what it throws ends it; may be empty without media
  std::optional<std::chrono::steady_clock::time_point> deadline;
  FetchTrust trust = {};  // of pictures on other hosts
};

}  // namespace ferry
