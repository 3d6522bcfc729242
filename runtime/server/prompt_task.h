#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/picture_fetch.h"

namespace ferry {

/// How far making a prompt may go.
struct PromptTask {
  const ServerLimits& limits;
  std::function<void()> check_in;  // called now and then; what it throws ends it; may be empty without media
  std::optional<Clock::Time> deadline;
  FetchTrust trust = {};                                                         // of pictures on other hosts
  std::chrono::milliseconds connect_timeout = RemotePictures().connect_timeout;  // to one of these
  Clock& clock = real_clock();  // of the deadline, and of the time that pictures on other hosts take
};

}  // namespace ferry
