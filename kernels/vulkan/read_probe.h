#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/vulkan/commands.h"
#include "runtime/base/clock.h"

namespace ferry::vulkan {

/// Measures how fast a device reads its memory at best, as the yardstick of benchmarks: a shader that does nothing else. One
/// thread at a time.
class ReadProbe {
 public:
  /// A stream of at least 64 KiB. The device outlives it. Throws Error{kResourceExhausted}.
  ReadProbe(Device& device, std::size_t num_bytes, Clock& clock = real_clock());

  /// Of the stream, rounded down to whole words of 16 bytes.
  std::size_t num_bytes() const { return num_bytes_; }
  /// What each of the stream's words is from now on; zeros at first.
  void fill(uint32_t word);

  /// How the stream is shared out: workgroups of so many invocations, each of which reads so many units of 16 bytes.
  struct Shape {
    uint32_t invocations, units_each;
  };
  static constexpr std::array<Shape, 4> kShapes = {{{128, 4}, {128, 16}, {256, 4}, {256, 16}}};

  /// Reads the stream so many times, one after the other.
  struct Pass {
    double seconds;  // from handing it over until the host sees that it has run
    uint32_t total;  // of all words read, modulo 2^32
  };
  Pass read(Shape shape, int num_times);

  /// Of the best of all shapes. The stream must be zeros.
  double bytes_per_s();

 private:
  void run();

  Device& device_;
  Clock& clock_;
  const std::size_t num_bytes_;
  Commands commands_;
  Buffer stream_, total_;
};

}  // namespace ferry::vulkan
