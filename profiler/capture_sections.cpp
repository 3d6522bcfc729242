#include "profiler/capture_sections.h"

#include "profiler/counters/counter_readings.h"

namespace ferry {
namespace {

/// Of something at `step` from `begin` to `end` (ticks of the rank); kNoStep: outside of steps.
bool is_inside(const CaptureWindow& window, const RankCapture& rank, uint32_t step, uint64_t begin, uint64_t end) {
  if (window.last_step < window.first_step) return false;
  if (step == kNoStep) return begin <= rank.end && end >= rank.begin;
  return step >= window.first_step && step <= window.last_step;
}

constexpr CaptureSection kCounterSection{
    .name = "counters",
    .encode = [](const RankCapture& rank) { return encode_counters(rank.counters); },
    .decode = [](std::span<const std::byte> bytes, const std::string& source,
                 RankCapture& rank) { rank.counters = decode_counters(bytes, source); },
    .cut =
        [](const CaptureWindow& window, RankCapture& rank) {
          std::erase_if(rank.counters.readings, [&](const CounterReading& reading) {
            return !is_inside(window, rank, reading.step, reading.begin, reading.end);
          });
        },
    .renumber =
        [](uint32_t first_step, RankCapture& rank) {
          for (CounterReading& reading : rank.counters.readings) {
            if (reading.step != kNoStep) reading.step += first_step;
          }
        },
};

constexpr CaptureSection kSections[] = {kCounterSection};

}  // namespace

std::span<const CaptureSection> capture_sections() { return kSections; }

}  // namespace ferry
