#pragma once

#include <cstdint>

namespace ferry {

/// Finds codes 0 ‥ 15, a scale that a group word can hold and a zero point 0 ‥ 15 for `count` finite weights, a multiple of 16:
/// w ~ scale * (code - zero_point) with a small square error.
using Int4Search = void (*)(const float* weights, int64_t count, uint8_t* codes, float& scale, uint8_t& zero_point);

/// The build for the widest registers of this processor. All give the same bits.
Int4Search select_int4_search();

namespace cpu_generic {
void search_int4(const float* weights, int64_t count, uint8_t* codes, float& scale, uint8_t& zero_point);
}
namespace cpu_avx2 {
void search_int4(const float* weights, int64_t count, uint8_t* codes, float& scale, uint8_t& zero_point);
}
namespace cpu_avx512 {
void search_int4(const float* weights, int64_t count, uint8_t* codes, float& scale, uint8_t& zero_point);
}

}  // namespace ferry
