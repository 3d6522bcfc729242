#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "runtime/base/clock.h"

namespace ferry {

/// The requests that were accepted and whose prompts are still being made: the coordinator does not know them yet, but their
/// ids are taken, they can be aborted, and a server that is told to leave waits for them. Any thread may call any method.
///
/// A request enters with its owner, its id (may be empty) and what aborts it, and leaves once it is submitted or refused.
class Preparations {
 public:
  using Place = uint64_t;

  explicit Preparations(Clock& clock = real_clock()) : clock_(clock) {}
  Preparations(const Preparations&) = delete;
  Preparations& operator=(const Preparations&) = delete;

  /// `abort` is called at most until leave() returns; it must be quick and must not call this. Throws
  /// Error{kInvalidArgument} for an id that its owner has given to another one here, {kUnavailable} once drain() was called.
  [[nodiscard]] Place enter(const std::string& owner, const std::string& request_id, std::function<void()> abort);
  void leave(Place place);

  /// Aborts the one that `owner` calls `request_id`; false if there is none.
  bool abort(const std::string& owner, const std::string& request_id);

  /// Lets nobody in any more and returns when all have left; those that are here at `deadline` are aborted, and waited for
  /// a few seconds more.
  void drain(Clock::Time deadline);

 private:
  struct Entry {
    std::string owner, request_id;
    std::function<void()> abort;
  };

  Entry* find(const std::string& owner, const std::string& request_id);

  Clock& clock_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable left_;
  std::map<Place, Entry> entries_;  // few: the pools' queues bound them
  Place next_place_ = 0;
  bool is_draining_ = false;
};

}  // namespace ferry
