#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "runtime/base/error.h"

namespace ferry {

/// A placement that was set by hand is on its way: what becomes of it. The thread that steps settles it, once; any other may
/// wait for that.
class PlacementOrder {
 public:
  /// Steps run by it from now on.
  void settle(uint32_t epoch);
  /// They never will, and run by what there was.
  void fail(const Error& error);

  /// Waits at most so long. The epoch of the placement, once steps run by it; throws what it failed with.
  std::optional<uint32_t> wait_for(std::chrono::milliseconds time);

 private:
  std::mutex mutex_;
  std::condition_variable settled_;
  std::optional<uint32_t> epoch_;
  std::optional<Error> error_;
};

}  // namespace ferry
