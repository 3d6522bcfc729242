#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/vulkan/commands.h"
#include "runtime/base/clock.h"
#include "runtime/base/types.h"

namespace ferry::vulkan {

/// Measures how fast a device multiplies at best, as the yardstick of benchmarks: shaders that do nothing else, with factors
/// that stay in registers. One thread at a time.
class MultiplyProbe {
 public:
  /// The device outlives it.
  explicit MultiplyProbe(Device& device, Clock& clock = real_clock());

  /// A way to multiply, and how its workgroups fill the device.
  struct Way {
    bool is_of_codes = false;
    Fragment fragment;  // none: plain arithmetic
    uint32_t invocations = 0;
    uint32_t lefts = 0, rights = 0;  // fragments that a subgroup multiplies with each other; of plain arithmetic lefts x 1 are
                                     // the sums of an invocation
    uint32_t num_rounds = 0;         // of products for each sum

    uint32_t num_sums = 0;  // of a workgroup
    double operations = 0;  // likewise; a multiply-add is two
  };
  /// How factors of f32, bf16 or kI8 (codes) can be multiplied on this device: by matrices, where products are multiplied by
  /// them, and without, which comes last.
  std::vector<Way> ways(DType factors) const;

  /// One dispatch of that many workgroups, 65535 at most.
  struct Pass {
    double seconds;      // from handing it over until the host sees that it has run
    double operations;   // of all workgroups
    uint32_t num_wrong;  // of all their sums, modulo 2^32
  };
  Pass multiply(const Way& way, uint32_t num_workgroups);

  /// Operations a second of the best way.
  double flops_per_s(DType factors);

 private:
  Device& device_;
  Clock& clock_;
  Commands commands_;
  Buffer num_right_;
};

/// What multiplies such factors: "bf16 matrices 16x16x16", "packed dot products" or "fused multiply-adds".
std::string multiply_unit(const DeviceTraits& traits, DType factors);

}  // namespace ferry::vulkan
