#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous/join.h"
#include "runtime/base/error.h"

namespace ferry {

/// Calls a coordinator on a thread of its own until it answers, while its owner does other things. One owner's thread.
class Joiner {
 public:
  Joiner(std::string address, std::string key, std::vector<std::byte> introduction);
  /// Gives up within a tenth of a second.
  ~Joiner();
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  const std::string& address() const { return address_; }

  /// From now on it calls, for so long.
  void call(std::chrono::milliseconds time);
  /// Whether it does, or has an answer that is not taken.
  bool is_calling() const;
  /// Returns when there is an answer, or after `time`.
  void wait(std::chrono::milliseconds time) const;
  /// The place that was given, once; nothing while there is none. Throws what join() does, once, when nobody came or this rank
  /// was refused.
  std::optional<Joined> take();

 private:
  void run();

  const std::string address_, key_;
  const std::vector<std::byte> introduction_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<std::chrono::steady_clock::time_point> until_;  // while it calls
  std::optional<Joined> joined_;
  std::optional<Error> error_;
  bool is_over_ = false;
  std::stop_source stop_;  // of a call that is over
  std::thread thread_;
};

}  // namespace ferry
