#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/base/error.h"

namespace ferry {

/// A placement that was set by hand is on its way: what becomes of it. The thread that steps settles it, once; any other may
/// wait for that.
class PlacementOrder {
 public:
  /// `is_given_up`: whether its caller does not wait any more; may be empty. It is asked from the thread that steps.
  explicit PlacementOrder(std::function<bool()> is_given_up = {}) : is_given_up_(std::move(is_given_up)) {}

  /// Asked before steps run by it: once they do, it is too late.
  bool is_given_up();
  /// Its caller is gone, and is asked nothing any more.
  void let_go();
  /// Steps run by it from now on.
  void settle(uint32_t epoch);
  /// They never will, and run by what there was.
  void fail(const Error& error);

  /// Waits at most so long. The epoch of the placement, once steps run by it; throws what it failed with.
  std::optional<uint32_t> wait_for(std::chrono::milliseconds time);

 private:
  std::mutex mutex_;
  std::condition_variable settled_;
  std::function<bool()> is_given_up_;
  std::optional<uint32_t> epoch_;
  std::optional<Error> error_;
};

}  // namespace ferry
