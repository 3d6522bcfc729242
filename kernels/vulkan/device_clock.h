#pragma once

#include <cstdint>

#include "kernels/vulkan/device.h"

// From a device's clock to the one that spans are stamped with (profiler/tick_clock.h).

namespace ferry::vulkan {

/// `to - from` of two timestamps of which only the lowest `bits` count, so that the clock may have wrapped between them.
int64_t ticks_between(uint64_t from, uint64_t to, uint32_t bits);

/// A moment as both clocks have it.
struct ClockPair {
  uint64_t device = 0;  // ticks of the device
  uint64_t host = 0;    // ticks of now_ticks()
  double bound = 0;     // the host's are right to within so many
};

/// Where the device's clock stands when nobody can read it: no submission begins before it is handed over, or ends after it is
/// seen to have. The narrowest bounds of a while count; after it the clocks may have drifted.
class ClockBrackets {
 public:
  /// `host_per_device`: ticks. A while is `period` ticks of the host.
  ClockBrackets(double host_per_device, uint32_t bits, uint64_t period);

  /// A submission that was handed over at `submitted` and seen to have run at `seen`, by its own clock from `begin` to `end`.
  void add(uint64_t submitted, uint64_t begin, uint64_t end, uint64_t seen);
  /// In the middle between the bounds. After add().
  ClockPair pair() const;

 private:
  const double host_per_device_;
  const uint32_t bits_;
  const uint64_t period_;
  bool is_empty_ = true;
  uint64_t device_ = 0, since_ = 0;   // of the first of the while: its begin, and when it was handed over
  double earliest_ = 0, latest_ = 0;  // that device_ was, in the host's ticks after since_
};

/// Follows one device's clock. One thread at a time.
class DeviceClock {
 public:
  /// The device outlives it, and has a clock.
  explicit DeviceClock(Device& device);

  /// Whether it is read together with the host's; else it is known by brackets.
  bool is_calibrated() const { return is_calibrated_; }
  /// Before timestamps are placed that a submission brought: see ClockBrackets::add(). Reads the clock again if that was long
  /// ago, or if the submission would lie outside of its bounds: a driver may give a wrong reading. What two readings cannot
  /// place, brackets do.
  void follow(uint64_t submitted, uint64_t begin, uint64_t end, uint64_t seen);
  /// Ticks of the host at a timestamp.
  uint64_t place(uint64_t timestamp) const;
  /// By which they may be off, in ns.
  double bound_ns() const { return pair_.bound * ns_per_host_tick_; }

 private:
  ClockPair read() const;
  void advance(ClockPair now);
  void restart(ClockPair now);
  bool agrees(uint64_t submitted, uint64_t begin, uint64_t end, uint64_t seen) const;

  Device& device_;
  const bool is_calibrated_;
  const double ns_per_host_tick_;
  const uint32_t bits_;
  const double nominal_rate_;  // of the host's ticks to the device's
  double host_per_device_;     // the same, as it was measured
  ClockPair pair_;
  ClockBrackets brackets_;
};

}  // namespace ferry::vulkan
