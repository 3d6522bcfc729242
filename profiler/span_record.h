#pragma once

#include <compare>
#include <cstdint>

#include "profiler/zones.h"

namespace ferry {

inline constexpr uint32_t kNoStep = 0xffffffff;
inline constexpr int16_t kNoLayer = -1;

/// What an exchange of rows between the coordinator and its workers is known by, on every rank.
struct ExchangeId {
  uint32_t step = kNoStep;
  int16_t layer = kNoLayer;
  uint8_t micro_batch = 0;

  friend auto operator<=>(const ExchangeId&, const ExchangeId&) = default;
};

inline constexpr int kMaxRecordedMicroBatches = 128;  // of a layer in a step
/// Set in the micro_batch of a device's span: the rest of the operator whose span is before it, in the next submission.
inline constexpr uint8_t kContinuedBit = 0x80;

/// One finished span as it lies in a ring and in a capture's file: 32 bytes, little-endian. Times are ticks of the recording
/// rank's clock (profiler/tick_clock.h).
struct SpanRecord {
  uint64_t begin = 0;  // ticks
  uint64_t end = 0;    // ticks, >= begin
  uint32_t step = kNoStep;
  Zone zone = Zone::kStep;
  uint8_t micro_batch = 0;  // of the layer in this step, < kMaxRecordedMicroBatches
  int16_t layer = kNoLayer;
  uint32_t a = 0;  // what the zone's a_name says
  uint32_t b = 0;

  friend bool operator==(const SpanRecord&, const SpanRecord&) = default;
};
static_assert(sizeof(SpanRecord) == 32);

/// Of a record, a slice or a message.
template <class Placed>
ExchangeId exchange_of(const Placed& placed) {
  return {placed.step, static_cast<int16_t>(placed.layer), placed.micro_batch};
}

}  // namespace ferry
