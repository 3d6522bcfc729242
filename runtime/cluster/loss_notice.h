#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

namespace ferry {

/// The first loss of a rank, and who wants to hear of it. Any thread may call anything.
class LossNotice {
 public:
  using Listener = std::function<void(const std::string& reason)>;

  /// Keeps the first reason and calls the listener; later ones do nothing. True for the first.
  bool report(const std::string& reason);
  /// From here on `listener` hears of the loss, at once if it was reported before. One at a time; an empty one ends it, and
  /// none is being called when this returns. A listener must not call this object.
  void listen(Listener listener);
  /// Returns whether a loss was reported before `limit` passed.
  bool wait_for(std::chrono::milliseconds limit) const;

 private:
  mutable std::mutex mutex_;  // guards all below
  mutable std::condition_variable reported_;
  std::string reason_;
  Listener listener_;
};

}  // namespace ferry
