#include "kernels/e4m3.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

namespace ferry {
namespace {

float decode(unsigned code) {
  const int exponent = static_cast<int>(code >> 3 & 15), mantissa = static_cast<int>(code & 7);
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(1.0F + static_cast<float>(mantissa) / 8, exponent - 7);
  if ((code & 0x7F) == kE4M3NaN) value = std::numeric_limits<float>::quiet_NaN();
  return (code & 0x80) != 0 ? -value : value;
}

}  // namespace

float e4m3_value(uint8_t code) {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = decode(static_cast<unsigned>(i));
    return all;
  }();
  return values[code];
}

}  // namespace ferry
