#include "profiler/capture_sections.h"

#include <algorithm>

#include "profiler/counters/counter_readings.h"
#include "profiler/memory/memory_samples.h"

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

/// A sample holds until the next one: the last one before a window is that of its begin.
void cut_memory(const CaptureWindow& window, RankCapture& rank) {
  std::vector<MemorySample>& samples = rank.memory.samples;
  if (window.last_step < window.first_step) samples.clear();
  if (samples.empty()) return;
  samples.front().ticks = std::min(samples.front().ticks, rank.end);  // the only one of a snapshot: it was taken right then
  std::erase_if(samples, [&](const MemorySample& sample) { return sample.ticks > rank.end; });
  const auto first = std::ranges::find_if(samples, [&](const MemorySample& sample) { return sample.ticks > rank.begin; });
  if (first == samples.begin()) return;
  samples.erase(samples.begin(), first - 1);
  samples.front().ticks = rank.begin;
}

constexpr CaptureSection kMemorySection{
    .name = "memory",
    .encode = [](const RankCapture& rank) { return encode_memory(rank.memory); },
    .decode = [](std::span<const std::byte> bytes, const std::string& source,
                 RankCapture& rank) { rank.memory = decode_memory(bytes, source); },
    .cut = cut_memory,
    .renumber = [](uint32_t, RankCapture&) {},
};

constexpr CaptureSection kStackSection{
    .name = "stacks",
    .encode = [](const RankCapture& rank) { return encode_stacks(rank.stacks); },
    .decode = [](std::span<const std::byte> bytes, const std::string& source,
                 RankCapture& rank) { rank.stacks = decode_stacks(bytes, source); },
    .cut =
        [](const CaptureWindow& window, RankCapture& rank) {
          std::erase_if(rank.stacks.samples, [&](const StackSample& sample) {
            return !is_inside(window, rank, kNoStep, sample.ticks, sample.ticks);
          });
        },
    .renumber = [](uint32_t, RankCapture&) {},
};

constexpr CaptureSection kSections[] = {kCounterSection, kMemorySection, kStackSection};

}  // namespace

std::span<const CaptureSection> capture_sections() { return kSections; }

}  // namespace ferry
