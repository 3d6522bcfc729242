#pragma once

#include <cstdint>

namespace ferry {

inline constexpr uint8_t kE4M3NaN = 0x7F;  // without its sign

/// The value of a code: sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinities, one NaN of each sign. The format
/// "E4M3" of the OCP 8-bit floating point specification. Every value is a bfloat16, too.
float e4m3_value(uint8_t code);

}  // namespace ferry
