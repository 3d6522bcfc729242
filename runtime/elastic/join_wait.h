#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/clock.h"

namespace ferry {

/// Lines that a worker prints every kLinePeriod while it waits for a coordinator:
///
///   waits for a coordinator at node0:6000: 10 of 60 s
///
/// One thread at a time.
class JoinWait {
 public:
  static constexpr std::chrono::seconds kLinePeriod{10};

  /// `clock` outlives this.
  explicit JoinWait(std::string address, Clock& clock = real_clock()) : address_(std::move(address)), clock_(clock) {}

  /// It waits from now on, for `limit` at most.
  void begin(std::chrono::milliseconds limit);
  void end() { next_line_.reset(); }
  /// The line that is due, once; nothing if none is.
  std::optional<std::string> take_line();

 private:
  const std::string address_;
  Clock& clock_;
  Clock::Time start_;
  std::chrono::milliseconds limit_{0};
  std::optional<Clock::Time> next_line_;  // while it waits
};

}  // namespace ferry
