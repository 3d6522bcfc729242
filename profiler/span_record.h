#pragma once

#include <cstdint>

#include "profiler/zones.h"

namespace ferry {

inline constexpr uint32_t kNoStep = 0xffffffff;
inline constexpr int16_t kNoLayer = -1;

/// One finished span as it lies in a ring and in a capture's file: 32 bytes, little-endian. Times are ticks of the recording
/// rank's clock (profiler/tick_clock.h).
struct SpanRecord {
  uint64_t begin = 0;  // ticks
  uint64_t end = 0;    // ticks, >= begin
  uint32_t step = kNoStep;
  Zone zone = Zone::kStep;
  int16_t layer = kNoLayer;
  uint32_t a = 0;  // what the zone's a_name says
  uint32_t b = 0;
};
static_assert(sizeof(SpanRecord) == 32);

}  // namespace ferry
